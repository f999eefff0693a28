"""Requests to engines over connections that are kept: what goes out, what comes back, and what becomes of either."""

import asyncio
import hashlib

import pytest

from engine_agent.gateway.calling import pool
from engine_agent.gateway.calling.answer import READ_BYTES
from engine_agent.gateway.calling.connection import MOST_HEAD_BYTES
from engine_agent.gateway.tables import Engine
from engine_agent.gateway.upstream import Broken, NotThere, Unanswered, Upstream, parts, passed_on, whole
from tests.support.ports import free_port
from tests.unit.gateway.calling.engines import ANSWER, Talk, asked, engine

LARGE = bytes(range(256)) * 4_096 * 4  # 4 MiB
UNREAD = 64 << 20
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def good(talk: Talk) -> None:
    while True:
        await talk.heard()
        await talk.say(ANSWER)


async def answered(upstream: Upstream, engine: Engine, body: bytes = b"{}") -> bytes:
    async with asked(upstream, engine, body) as answer:
        return await whole(answer)


async def test_an_engine_is_told_for_whom_and_how_much() -> None:
    heads = []

    async def noting(talk: Talk) -> None:
        assert await talk.heard() == b'{"a": 1}'
        heads.append(talk.head)
        await talk.say(ANSWER)

    async with engine(noting) as running, Upstream() as upstream:
        assert await answered(upstream, running.engine, b'{"a": 1}') == b"{}"
        host = running.engine.address.removeprefix("http://").encode()
    first, *lines = heads[0].rstrip().split(b"\r\n")
    assert first == b"POST /v1/x HTTP/1.1"
    told = dict(line.split(b": ", 1) for line in lines)
    assert told[b"host"] == host
    assert (told[b"x-luminet-identity"], told[b"x-request-id"], told[b"content-length"]) == (b"v1.id", b"r1", b"8")


async def test_a_connection_is_kept_for_the_next_request_and_as_many_as_run_at_once() -> None:
    async with engine(good) as running, Upstream() as upstream:
        for _ in range(5):
            await answered(upstream, running.engine)
        assert running.connections == 1
        async with asked(upstream, running.engine), asked(upstream, running.engine):
            assert running.connections == 2
        await asyncio.gather(*[answered(upstream, running.engine) for _ in range(2)])
        assert running.connections == 2


async def test_a_connection_is_kept_only_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "KEEP_ALIVE_SECONDS", 0.0)
    async with engine(good) as running, Upstream() as upstream:
        for _ in range(3):
            await answered(upstream, running.engine)
        assert running.connections == 3


async def test_what_is_kept_too_long_is_closed_though_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "KEEP_ALIVE_SECONDS", 0.0)
    monkeypatch.setattr(pool, "SWEEP_SECONDS", 0.01)
    has_ended = asyncio.Event()

    async def once(talk: Talk) -> None:
        await talk.heard()
        await talk.say(ANSWER)
        await talk.until_left()
        has_ended.set()

    async with engine(once) as running, Upstream() as upstream:
        await answered(upstream, running.engine)
        await has_ended.wait()


@pytest.mark.parametrize("last", [b"connection: close\r\n", b""])
async def test_a_connection_that_the_engine_ends_is_not_used_again(last: bytes) -> None:
    async def once(talk: Talk) -> None:
        await talk.heard()
        await talk.say(ANSWER.replace(b"content-length", last + b"content-length"))

    async with engine(once) as running, Upstream() as upstream:
        assert await answered(upstream, running.engine) == b"{}"
        while any(kept.is_fresh for idle in upstream._pool._idle.values() for kept in idle):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # until it is heard that it ended
        assert await answered(upstream, running.engine) == b"{}"
        assert running.connections == 2


async def test_who_says_more_than_was_asked_is_not_asked_on_that_connection_again() -> None:
    async def twice(talk: Talk) -> None:
        await talk.heard()
        await talk.say(ANSWER + ANSWER.replace(b"{}", b"[]"))
        await talk.until_left()

    async with engine(twice) as running, Upstream() as upstream:
        assert [await answered(upstream, running.engine) for _ in range(2)] == [b"{}", b"{}"]
        assert running.connections == 2


async def test_an_answer_comes_part_by_part_and_its_head_before_any() -> None:
    seen = [asyncio.Event() for _ in range(3)]

    async def slow(talk: Talk) -> None:
        await talk.heard()
        await talk.say(CHUNKED)
        for number, one in enumerate(seen):
            await one.wait()
            await talk.say(b"3\r\n<%d>\r\n" % number)
        await talk.say(b"0\r\n\r\n")

    async with engine(slow) as running, Upstream() as upstream, asked(upstream, running.engine) as answer:
        assert (answer.status, answer.media_type) == (200, "text/event-stream")
        found = []
        reading = parts(answer)
        for one in seen:
            one.set()
            found.append(await anext(reading))
        assert found == [b"<0>", b"<1>", b"<2>"]
        assert [data async for data in reading] == []


async def test_who_does_not_read_holds_the_engine_up_and_loses_nothing() -> None:
    said, is_held_up = 0, asyncio.Event()

    async def much(talk: Talk) -> None:
        nonlocal said
        await talk.heard()
        await talk.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % UNREAD)
        data = bytes(2**20)
        while said < UNREAD:
            talk.writer.write(data)
            said += len(data)
            try:
                async with asyncio.timeout(0.5):
                    await talk.writer.drain()
            except TimeoutError:
                is_held_up.set()
                await talk.writer.drain()

    async with engine(much) as running, Upstream() as upstream, asked(upstream, running.engine) as answer:
        await is_held_up.wait()
        assert answer._held < READ_BYTES + 2**20
        assert said < UNREAD
        assert sum([len(data) async for data in parts(answer)]) == UNREAD


async def test_who_leaves_early_ends_the_request_at_the_engine() -> None:
    has_ended = asyncio.Event()

    async def endless(talk: Talk) -> None:
        await talk.heard()
        await talk.say(CHUNKED + b"1\r\n.\r\n")
        await talk.until_left()
        has_ended.set()

    async with engine(endless) as running, Upstream() as upstream:
        async with asked(upstream, running.engine) as answer:
            assert await answer.part() == b"."
        await has_ended.wait()


async def test_who_is_cancelled_before_any_header_ends_the_request_at_the_engine() -> None:
    has_heard, has_ended = asyncio.Event(), asyncio.Event()

    async def silent(talk: Talk) -> None:
        await talk.heard()
        has_heard.set()
        await talk.until_left()
        has_ended.set()

    async with engine(silent) as running, Upstream() as upstream:
        task = asyncio.create_task(answered(upstream, running.engine))
        await has_heard.wait()
        task.cancel()
        await has_ended.wait()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_large_body_arrives_whole_at_an_engine_that_takes_its_time() -> None:
    async def slow(talk: Talk) -> None:
        await talk.heard_head()
        digest, left = hashlib.sha256(), len(LARGE)
        while left:
            data = await talk.reader.read(min(left, 100_000))
            digest.update(data)
            left -= len(data)
            await asyncio.sleep(0)
        told = digest.hexdigest().encode()
        await talk.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(told), told))

    async with engine(slow) as running, Upstream() as upstream:
        assert await answered(upstream, running.engine, LARGE) == hashlib.sha256(LARGE).hexdigest().encode()


async def test_an_answer_to_half_a_body_is_the_answer_and_the_rest_is_not_sent() -> None:
    async def refusing(talk: Talk) -> None:
        await talk.heard_head()
        await talk.say(ANSWER.replace(b"200 OK", b"413 x"))
        await talk.until_left()

    async with engine(refusing) as running, Upstream() as upstream:
        for _ in range(2):
            async with asked(upstream, running.engine, LARGE * 4) as answer:
                assert answer.status == 413
                assert await whole(answer) == b"{}"
        assert running.connections == 2


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async def old(talk: Talk) -> None:
        await talk.heard()
        await talk.say(b"HTTP/1.0 200 OK\r\n\r\nall there is")

    async with engine(old) as running, Upstream() as upstream:
        assert [await answered(upstream, running.engine) for _ in range(2)] == [b"all there is"] * 2
        assert running.connections == 2


async def test_heads_that_only_say_that_another_comes_are_passed_over() -> None:
    async def patient(talk: Talk) -> None:
        await talk.heard()
        await talk.say(b"HTTP/1.1 100 Continue\r\n\r\n")
        await talk.say(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + ANSWER)

    async with engine(patient) as running, Upstream() as upstream, asked(upstream, running.engine) as answer:
        assert (answer.status, answer.header("link")) == (200, "")
        assert await whole(answer) == b"{}"


@pytest.mark.parametrize(
    "said",
    [b"", b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 101 x\r\nupgrade: y\r\n\r\n"],
)
async def test_who_has_no_header_to_say_has_not_answered(said: bytes) -> None:
    async def wrong(talk: Talk) -> None:
        await talk.heard()
        await talk.say(said)

    async with engine(wrong) as running, Upstream() as upstream:
        with pytest.raises(Unanswered) as told:
            await answered(upstream, running.engine)
        assert not isinstance(told.value, NotThere)


async def test_a_head_without_an_end_is_no_answer() -> None:
    async def endless(talk: Talk) -> None:
        await talk.heard()
        await talk.say(b"HTTP/1.1 200 OK\r\n")
        for number in range(MOST_HEAD_BYTES):
            await talk.say(b"x-%d: y\r\n" % number)

    async with engine(endless) as running, Upstream() as upstream:
        with pytest.raises(Unanswered, match="a head of more than"):
            await answered(upstream, running.engine)


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{",
        CHUNKED + b"5\r\n{",
        CHUNKED + b"no size\r\n",
    ],
)
async def test_an_answer_that_began_and_will_not_end_is_broken(said: bytes) -> None:
    async def breaking(talk: Talk) -> None:
        await talk.heard()
        await talk.say(said)

    async with engine(breaking) as running, Upstream() as upstream, asked(upstream, running.engine) as answer:
        assert answer.status == 200
        with pytest.raises(Broken):
            await whole(answer)


async def test_where_nobody_listens_nobody_is_there() -> None:
    nobody = Engine("agent-1", f"http://127.0.0.1:{free_port()}", True, {}, b"")
    nowhere = Engine("agent-1", f"http://{'x' * 300}.invalid:1", True, {}, b"")
    async with Upstream() as upstream:
        for one in (nobody, nowhere):
            with pytest.raises(NotThere):
                await answered(upstream, one)


def test_headers_of_one_connection_alone_are_not_passed_on() -> None:
    told = [("connection", "close, x-hop"), ("x-hop", "1"), ("x-luminet-agent", "a"), ("set-x", "1"), ("set-x", "2")]
    assert passed_on(told) == [("x-luminet-agent", "a"), ("set-x", "1"), ("set-x", "2")]
