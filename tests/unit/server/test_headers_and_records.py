"""Header, usage, counters and journal are one number; it is written when headers leave, and only then."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.engine.errors import EngineFailed
from engine_agent.engine.outputs import Delta
from engine_agent.journal.journal import Closed, Journal, Opened
from engine_agent.server.headers import percent
from tests.unit.server.asking import Asker, chat_body
from tests.unit.server.reading import counters, records
from tests.unit.server.scripted import ScriptedBackend, saying

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
COUNTED = (
    "cache-hit",
    "cached-tokens",
    "prompt-tokens",
    "kv-dtype",
    "namespace",
    "policy-revision",
    "miss-reason",
    "agent",
)


def has_counted_headers(headers: dict[str, str]) -> bool:
    return any(f"x-luminet-{name}" in headers for name in COUNTED)


@pytest.mark.parametrize("stream", [False, True])
async def test_requests_with_one_id_are_told_apart_by_their_records(
    asker: Asker, journal: Journal, stream: bool
) -> None:
    """An engine alone takes its clients' ids, which may come twice, also at once."""
    calls = [
        asker.call(COMPLETIONS, {"model": "tiny", "prompt": "x", "stream": stream}, headers={"x-request-id": "same"})
        for _ in range(3)
    ]
    for call in calls:
        assert (await call.answered()).status == 200
    entries = journal.since("boot-1", 0, 100).entries
    opened = [entry.sequence for entry in entries if isinstance(entry.record, Opened)]
    assert {entry.record.request_id for entry in entries} == {"same"}
    assert sorted(entry.record.opened for entry in entries if isinstance(entry.record, Closed)) == opened


@pytest.mark.parametrize("stream", [False, True])
async def test_header_usage_counters_and_journal_say_the_same(
    asker: Asker, backend: ScriptedBackend, journal: Journal, stream: bool
) -> None:
    backend.cached_tokens = 16
    options = {"stream_options": {"include_usage": True}} if stream else {}
    answer = await asker.complete(prompt=["x" * 40, "y" * 24], stream=stream, **options)
    told = {name: answer.headers[f"x-luminet-{name}"] for name in COUNTED}
    assert told == {
        "cache-hit": "50.0",
        "cached-tokens": "32",
        "prompt-tokens": "64",
        "kv-dtype": "fp8",
        "namespace": "default",
        "policy-revision": "7",
        "miss-reason": "cold",
        "agent": "agent-1",
    }
    usage = answer.events[-2]["usage"] if stream else answer.document["usage"]
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (64, 32)
    opened, closed = records(journal)
    assert isinstance(opened, Opened)
    assert (opened.prompt_tokens, opened.cached_tokens, opened.miss_reason) == (64, 32, "cold")
    assert opened.missed == {"cold": 16, "tail": 16}
    assert opened.request_id == answer.headers["x-request-id"]
    assert isinstance(closed, Closed)
    assert (closed.outcome, closed.generated_tokens) == ("stop", usage["completion_tokens"])
    metrics = counters((await asker.get("/metrics")).body.decode())
    assert metrics['vllm:prefix_cache_queries_total{model_name="tiny"}'] == 64
    assert metrics['vllm:prefix_cache_hits_total{model_name="tiny"}'] == 32
    tenant = 'model="tiny",namespace="default",organisation="acme"'
    assert metrics[f'luminet_cached_tokens_total{{kv_dtype="fp8",{tenant}}}'] == 32
    assert metrics[f'luminet_missed_tokens_total{{{tenant},reason="tail"}}'] == 16
    assert metrics[f'luminet_requests_total{{{tenant},outcome="stop"}}'] == 1


def test_a_percentage_has_one_decimal_and_is_rounded_down() -> None:
    assert [percent(496, 512), percent(999_999, 1_000_000), percent(29, 100), percent(1, 1), percent(0, 0)] == [
        "96.8",
        "99.9",
        "29.0",
        "100.0",
        "0.0",
    ]


@given(st.integers(1, 2**40), st.data())
def test_a_percentage_never_says_more_than_is_true(whole: int, data: st.DataObject) -> None:
    part = data.draw(st.integers(0, whole))
    tenths = int(percent(part, whole).replace(".", ""))
    assert tenths * whole <= part * 1_000 < (tenths + 1) * whole


async def test_a_streams_headers_leave_before_its_first_token(
    asker: Asker, backend: ScriptedBackend, journal: Journal
) -> None:
    backend.pause_after = 0
    call = asker.call(CHAT, chat_body(stream=True))
    status, headers = await call.start()
    assert status == 200
    assert has_counted_headers(headers)
    assert [type(one) for one in records(journal)] == [Opened]  # before the headers, so certainly now
    backend.resumed.set()
    await call.end()
    assert [type(one) for one in records(journal)] == [Opened, Closed]


async def test_an_answer_in_one_piece_is_recorded_when_it_is_whole(
    asker: Asker, backend: ScriptedBackend, journal: Journal
) -> None:
    backend.pause_after = 3
    call = asker.call(CHAT, chat_body())
    await backend.asked.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert records(journal) == []
    backend.resumed.set()
    assert (await call.answered()).status == 200
    assert [type(one) for one in records(journal)] == [Opened, Closed]


async def test_a_refused_request_counts_nowhere(asker: Asker, journal: Journal) -> None:
    for answer in (
        await asker.chat(tools=[{}]),
        await asker.chat(temperature=9),
        await asker.post(CHAT, chat_body(), headers={"authorization": ""}),
    ):
        assert answer.status in (400, 401)
        assert not has_counted_headers(answer.headers)
    assert records(journal) == []


async def test_an_answer_that_fails_before_its_headers_counts_nowhere(
    asker: Asker, backend: ScriptedBackend, journal: Journal
) -> None:
    backend.script = lambda _: [Delta(0, 65, "A"), EngineFailed("", "the step failed")]
    answer = await asker.chat()
    assert (answer.status, answer.error["code"]) == (500, "engine_failed")
    assert not has_counted_headers(answer.headers)
    assert records(journal) == []


async def test_a_stream_that_breaks_off_is_recorded_with_how_it_ended(
    asker: Asker, backend: ScriptedBackend, journal: Journal
) -> None:
    backend.script = saying("Hel", finish="deadline")
    answer = await asker.chat(stream=True)
    assert answer.status == 200
    assert answer.events[-1]["error"]["code"] == "deadline_exceeded"  # and no [DONE]
    _, closed = records(journal)
    assert (closed.outcome, closed.generated_tokens) == ("deadline", 2)


async def test_without_room_in_the_journal_nobody_is_told_anything(
    asker: Asker, backend: ScriptedBackend, journal: Journal
) -> None:
    journal._most_bytes = 100
    for stream in (False, True):
        answer = await asker.chat(stream=stream)
        assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "journal_full", "5")
        assert not has_counted_headers(answer.headers)
    assert not backend.live


async def test_of_several_ends_the_one_that_weighs_most_is_recorded(
    asker: Asker, backend: ScriptedBackend, journal: Journal
) -> None:
    backend.script = lambda _: [Delta(0, 65, "A", None, "length"), Delta(1, 65, "A", None, "stop")]
    assert (await asker.chat(n=2)).status == 200
    assert records(journal)[1].outcome == "length"


async def test_an_answer_without_an_end_is_a_failure_of_ours(asker: Asker, backend: ScriptedBackend) -> None:
    backend.script = lambda _: [Delta(0, 65, "A")]
    assert (await asker.chat()).error["code"] == "engine_failed"
    assert (await asker.chat(stream=True)).events[-1]["error"]["code"] == "engine_failed"


async def test_every_answer_has_an_id_and_is_open_to_browsers(asker: Asker) -> None:
    for answer in (
        await asker.chat(),
        await asker.get("/nowhere"),
        await asker.post("/v1/models"),
    ):
        assert answer.headers["x-request-id"]
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "x-luminet-cache-hit" in answer.headers["access-control-expose-headers"]


async def test_what_needs_no_key_is_not_told_to_any_page_that_somebody_has_open(asker: Asker) -> None:
    for path in ("/health", "/metrics"):
        for method in ("GET", "OPTIONS", "POST"):
            answer = await asker.get(path, method=method, headers={"authorization": ""})
            assert answer.headers["x-request-id"]
            assert "access-control-allow-origin" not in answer.headers


async def test_a_clients_own_id_is_kept_where_it_is_harmless(asker: Asker) -> None:
    assert (await asker.post(CHAT, chat_body(), headers={"x-request-id": "abc-1"})).headers["x-request-id"] == "abc-1"
    assert (await asker.post(CHAT, chat_body(), headers={"x-request-id": "a b"})).headers["x-request-id"] != "a b"


async def test_two_requests_with_one_id_are_two_for_the_engine(asker: Asker, backend: ScriptedBackend) -> None:
    for _ in range(2):
        await asker.post(CHAT, chat_body(), headers={"x-request-id": "same"})
    assert len({one.request_id for one in backend.requests}) == 2


async def test_a_browser_may_ask_first(asker: Asker) -> None:
    answer = await asker.get(CHAT, method="OPTIONS", headers={"authorization": "", "origin": "https://example.org"})
    assert answer.status == 204
    assert "authorization" in answer.headers["access-control-allow-headers"]
    assert "POST" in answer.headers["access-control-allow-methods"]
