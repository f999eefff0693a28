"""Clients that leave, or do not read: their generation ends, and what was told is recorded."""

import asyncio

import pytest

from engine_agent.engine.errors import EngineFailed
from engine_agent.journal.journal import Journal
from engine_agent.server.app import OpenAiApp
from tests.unit.server.asking import SECONDS, Asker, chat_body
from tests.unit.server.reading import records
from tests.unit.server.scripted import ScriptedBackend, saying

CHAT = "/v1/chat/completions"


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(SECONDS):
        await event.wait()


@pytest.mark.parametrize("stream", [False, True])
async def test_who_leaves_while_waiting_is_withdrawn(
    asker: Asker, backend: ScriptedBackend, journal: Journal, stream: bool
) -> None:
    backend.admitting.clear()
    call = asker.call(CHAT, chat_body(stream=stream))
    await soon(backend.asked)
    call.left.set()
    await soon(backend.withdrawn)
    await call.end()
    assert call.sent.empty()
    assert records(journal) == []


@pytest.mark.parametrize("stream", [False, True])
async def test_who_leaves_while_it_runs_frees_its_blocks(
    asker: Asker, backend: ScriptedBackend, journal: Journal, stream: bool
) -> None:
    backend.pause_after = 2
    call = asker.call(CHAT, chat_body(stream=stream))
    await soon(backend.asked)
    if stream:
        await call.start()
    call.left.set()
    await soon(backend.cancelled)
    await call.end()
    assert not backend.live
    outcomes = [record.outcome for record in records(journal)[1:]]
    assert outcomes == (["cancelled"] if stream else [])


@pytest.mark.parametrize("stream", [False, True])
async def test_who_left_just_before_the_admission_is_not_recorded(
    asker: Asker, backend: ScriptedBackend, journal: Journal, stream: bool
) -> None:
    backend.admitting.clear()
    call = asker.call(CHAT, chat_body(stream=stream))
    await soon(backend.asked)
    backend.admitting.set()  # both in the same turn of the loop
    call.left.set()
    await call.end()
    assert call.sent.empty()
    assert records(journal) == []
    assert not backend.live


async def test_who_does_not_read_is_given_up(asker: Asker, backend: ScriptedBackend, journal: Journal) -> None:
    backend.script = saying("x" * 1_000)
    call = asker.call(CHAT, chat_body(stream=True), reads=5)
    await soon(backend.cancelled)
    await call.end()
    assert not backend.live
    assert records(journal)[1].outcome == "cancelled"


async def test_a_server_that_is_stopped_records_what_it_breaks_off(
    asker: Asker, backend: ScriptedBackend, journal: Journal
) -> None:
    backend.pause_after = 2
    call = asker.call(CHAT, chat_body(stream=True))
    await call.start()
    call.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.end()
    assert backend.cancelled.is_set()
    assert records(journal)[1].outcome == "cancelled"


async def test_who_is_not_answered_when_the_server_stops_is_told_to_ask_again(asker: Asker) -> None:
    call = asker.call(CHAT, chunks=[b'{"model":', b"..."], stalls_after=1)
    await asyncio.sleep(0)  # it waits for the body
    call.task.cancel()
    answer = await call.answered()
    assert (answer.status, answer.error["code"]) == (503, "overloaded")
    assert answer.headers["retry-after"] == "1"


async def test_what_an_engine_fails_at_because_it_stops_is_worth_asking_again(
    asker: Asker, app: OpenAiApp, backend: ScriptedBackend, journal: Journal
) -> None:
    backend.refusal = EngineFailed("", "the engine is closed")
    assert (await asker.chat()).status == 500
    app.stop()
    for stream in (False, True):
        answer = await asker.chat(stream=stream)
        assert (answer.status, answer.error["code"]) == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"
    backend.refusal = None
    backend.script = lambda _: [EngineFailed("", "the engine was stopped")]
    assert (await asker.chat()).status == 503
    assert records(journal) == []


async def test_who_does_not_send_its_body_is_told_so(asker: Asker) -> None:
    call = asker.call(CHAT, chunks=[b'{"model":', b"..."], stalls_after=1)
    answer = await call.answered()
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")
    assert answer.headers["connection"] == "close"


async def test_what_fails_in_one_stream_ends_that_stream(asker: Asker, backend: ScriptedBackend) -> None:
    backend.script = lambda _: [None]  # type: ignore[list-item]
    assert (await asker.chat()).error["code"] == "internal_error"
    assert (await asker.chat(stream=True)).events[-1]["error"]["code"] == "internal_error"
    backend.script = saying("fine")
    assert (await asker.chat()).status == 200
