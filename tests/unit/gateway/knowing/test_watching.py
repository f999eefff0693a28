"""Who follows an engine holds what it holds, or nothing: after gaps, torn pages, restarts and silence as well."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from prometheus_client import generate_latest

from engine_agent.contracts.block_events import BlockChange
from engine_agent.gateway.asked import Asked
from engine_agent.gateway.keys import Caller
from engine_agent.gateway.knowing.cutting import Cutter
from engine_agent.gateway.knowing.knowing import Knowing
from engine_agent.gateway.looking import session_open
from engine_agent.gateway.tables import Organisation
from tests.support.waiting import wait_until_async
from tests.unit.gateway.knowing.saying import NAMESPACE, chat, ground
from tests.unit.gateway.knowing.telling import LOAD, Teller, telling

PATH = "/v1/chat/completions"
ROOT = ground().root(NAMESPACE, b"")[:8]
OTHER = b"other!!!"
CALLER = Caller(Organisation("1", "acme", True, {}, {}, {}, frozenset(), ()), NAMESPACE)
BODY = chat("The sea was calm and the ship sailed on. " * 10)


def asked(**fields: object) -> Asked:
    told = {**BODY, **fields}
    return Asked("demo", None, json.dumps(told).encode(), told)


def stored(*marks: bytes, root: bytes = ROOT) -> BlockChange:
    return BlockChange("stored", "11", root, root, b"".join(marks))


class Follow:
    def __init__(self, teller: Teller, knowing: Knowing) -> None:
        self.teller, self.knowing = teller, knowing
        self.engines = {"agent-1": teller.engine}

    async def until_heard(self) -> None:
        await wait_until_async(lambda: self.knowing.heard("agent-1"))

    async def until_matched(self, tokens: int) -> None:
        prompt = await self.knowing.prompt(CALLER, asked(), PATH)
        assert prompt is not None
        await wait_until_async(lambda: self.knowing.matches(prompt) == {"agent-1": tokens})

    async def marks(self, count: int) -> list[bytes]:
        prompt = await self.knowing.prompt(CALLER, asked(), PATH)
        assert prompt is not None
        (marked,) = prompt.chains.values()
        return [marked.marks[8 * at : 8 * at + 8] for at in range(count)]


@pytest.fixture
async def follow() -> AsyncIterator[Follow]:
    async with telling() as teller, session_open() as session:
        engines = {"agent-1": teller.engine}
        knowing = Knowing(lambda: engines, session, lambda: 999.0)
        found = Follow(teller, knowing)
        found.engines = engines
        running = asyncio.create_task(knowing.run())
        yield found
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_engine_is_heard_when_all_it_holds_is_known(follow: Follow) -> None:
    assert await follow.knowing.prompt(CALLER, asked(), PATH) is None
    follow.teller.tell(7, stored(OTHER, root=OTHER), is_snapshot=True, more=True)
    await wait_until_async(lambda: len(follow.teller.asked) == 2)
    assert not follow.knowing.heard("agent-1")
    follow.teller.tell(8)
    await follow.until_heard()
    assert follow.teller.asked[:2] == [("", 0), ("boot-1", 7)]
    assert (follow.knowing.load("agent-1"), follow.knowing.seats("agent-1")) == (LOAD, 4)


async def test_what_comes_and_goes_is_followed(follow: Follow) -> None:
    follow.teller.tell(1, is_snapshot=True)
    await follow.until_heard()
    one, two, three = await follow.marks(3)
    follow.teller.tell(2, stored(one, two, three))
    await follow.until_matched(48)
    follow.teller.tell(3, BlockChange("removed", "11", ROOT, two, three))
    await follow.until_matched(32)
    follow.teller.tell(4, BlockChange("cleared", "11", ROOT, ROOT, b""))
    await follow.until_matched(0)
    assert follow.teller.asked[1:4] == [("boot-1", 1), ("boot-1", 2), ("boot-1", 3)]


async def test_a_gap_is_over_with_the_snapshot_that_fills_it(follow: Follow) -> None:
    follow.teller.tell(1, is_snapshot=True)
    await follow.until_heard()
    one, two = await follow.marks(2)
    follow.teller.tell(2, stored(one, two))
    await follow.until_matched(32)
    follow.teller.tell(90, stored(one), is_snapshot=True)  # it has no more what came after 2
    await follow.until_matched(16)
    assert b'luminet_gateway_event_gaps_total{agent="agent-1"} 1.0' in _exposition(follow.knowing)


async def test_a_torn_page_is_no_page_and_what_was_known_is_asked_for_anew(follow: Follow) -> None:
    follow.teller.tell(1, is_snapshot=True)
    await follow.until_heard()
    (one,) = await follow.marks(1)
    follow.teller.tell(2, stored(one))
    await follow.until_matched(16)
    follow.teller.pages.put_nowait(b"LUMBLK\x00\x01 torn")
    await wait_until_async(lambda: not follow.knowing.heard("agent-1"))
    assert follow.knowing.load("agent-1") is None
    await wait_until_async(lambda: follow.teller.asked[-1] == ("", 0))
    follow.teller.tell(3, stored(one), is_snapshot=True)
    await follow.until_heard()
    await follow.until_matched(16)


async def test_an_engine_that_began_anew_is_another_one(follow: Follow) -> None:
    follow.teller.tell(1, is_snapshot=True)
    await follow.until_heard()
    (one,) = await follow.marks(1)
    follow.teller.tell(2, stored(one))
    await follow.until_matched(16)
    follow.teller.boot, follow.teller.about["revision"] = "boot-2", "r2"
    follow.teller.tell(1, stored(one), is_snapshot=True)  # the answer to what was asked of the one before
    await wait_until_async(lambda: follow.teller.asked[-1] == ("", 0))
    follow.teller.tell(1, stored(one), is_snapshot=True)
    await follow.until_heard()
    await follow.until_matched(0)  # its blocks are another revision's


@pytest.mark.parametrize(
    "wrong", [{"bundle": "../x"}, {"bundle": "0" * 64}, {"block_tokens": 0}, {"kv_dtypes": None}, {"scale_sets": []}]
)
async def test_an_engine_that_makes_no_sense_is_not_heard(follow: Follow, wrong: dict[str, object]) -> None:
    follow.teller.about |= wrong
    follow.teller.tell(1, is_snapshot=True)
    await wait_until_async(lambda: follow.teller.abouts >= 2)  # it was tried again
    assert not follow.knowing.heard("agent-1")
    assert follow.teller.asked == []


async def test_an_engine_without_such_a_face_is_left_alone(follow: Follow) -> None:
    follow.teller.status = 404
    await wait_until_async(lambda: follow.teller.abouts >= 2)
    assert not follow.knowing.heard("agent-1")
    assert await follow.knowing.prompt(CALLER, asked(), PATH) is None


async def test_who_left_the_fleet_holds_nothing(follow: Follow) -> None:
    follow.teller.tell(1, is_snapshot=True)
    await follow.until_heard()
    (one,) = await follow.marks(1)
    follow.teller.tell(2, stored(one))
    await follow.until_matched(16)
    follow.engines.clear()
    await wait_until_async(lambda: not follow.knowing.heard("agent-1"))
    assert b'luminet_gateway_index_blocks{agent="agent-1"}' not in _exposition(follow.knowing)


@pytest.mark.parametrize("salt", ["", "a" * 257, 7])
async def test_a_salt_that_no_engine_takes_is_left_to_the_engine(follow: Follow, salt: object) -> None:
    follow.teller.tell(1, is_snapshot=True)
    await follow.until_heard()
    assert await follow.knowing.prompt(CALLER, asked(cache_salt=salt), PATH) is None
    assert await follow.knowing.prompt(CALLER, asked(cache_salt="mine"), PATH)


async def test_a_format_that_the_engine_has_not_is_nobodys(follow: Follow) -> None:
    follow.teller.tell(1, is_snapshot=True)
    await follow.until_heard()
    told = asked()
    assert await follow.knowing.prompt(CALLER, Asked("demo", "fp8", told.body, told.told), PATH) is None
    assert await follow.knowing.prompt(CALLER, Asked("other", None, told.body, told.told), PATH) is None


def _exposition(knowing: Knowing) -> bytes:
    return generate_latest(knowing.metrics.registry)


async def test_a_prompt_that_breaks_a_tokenizer_is_left_to_the_engine(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow.teller.tell(1, is_snapshot=True)
    await follow.until_heard()

    def breaking(*given: object) -> None:
        raise RuntimeError("a tokenizer's own")

    monkeypatch.setattr(Cutter, "head_tokens", breaking)
    assert await follow.knowing.prompt(CALLER, asked(), PATH) is None
