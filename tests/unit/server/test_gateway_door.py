"""What gateways are told at an engine's door, and that nobody else is."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from engine_agent.contracts.block_events import CONTENT_TYPE, events_decode
from engine_agent.contracts.identity import FLEET, HEADER, WATCH, sign
from engine_agent.journal.journal import Journal
from engine_agent.prompts.bundle import Bundle, bundle_encode, bundle_name, bundle_read
from engine_agent.server.app import OpenAiApp, openai_app
from engine_agent.server.gateways import GatewayDoor
from engine_agent.server.guard import SignedGuard
from tests.unit.engine.vocabularies import DEMO
from tests.unit.server.asking import Answered, Asker
from tests.unit.server.conftest import LIMITS
from tests.unit.server.identities import IDENTITY, KEY, NOW, OTHER, SECRET
from tests.unit.server.reading import records
from tests.unit.server.scripted import LOAD, ByteText, PlainTemplate, ScriptedBackend

BUNDLE = Bundle.from_folder(DEMO)
DATA = bundle_encode(BUNDLE)
NAME = bundle_name(DATA)
PATHS = ("/gateway/about", f"/gateway/bundles/{NAME}", "/gateway/events?boot=boot-1&since=3")


@pytest.fixture
def fleet(backend: ScriptedBackend, journal: Journal) -> OpenAiApp:
    guard = SignedGuard([SECRET], "agent-1", clock=lambda: NOW)
    door = GatewayDoor(backend, BUNDLE, guard, "agent-1")
    about: dict[str, Any] = {"agent_id": "agent-1", "limits": LIMITS, "gateways": door}
    return openai_app(backend, ByteText(), PlainTemplate(), journal, guard, **about)


async def watched(app: OpenAiApp, path: str, secret: bytes = SECRET, **fields: Any) -> Answered:
    whose = {"organisation_id": FLEET, "organisation": FLEET, "namespace_id": FLEET, "namespace": FLEET}
    identity = replace(IDENTITY, **{"deadline": None, "scope": WATCH, **whose, **fields})
    return await Asker(app, {}).get(path, headers={HEADER: sign(identity, secret)})


async def test_a_gateway_is_told_what_is_served(fleet: OpenAiApp, backend: ScriptedBackend) -> None:
    answer = await watched(fleet, "/gateway/about")
    assert answer.document == {
        "agent": "agent-1",
        "boot": "b1",
        "model": "tiny",
        "revision": backend.card.revision,
        "created": backend.card.created,
        "context_tokens": 512,
        "vocab_size": 257,
        "block_tokens": 16,
        "kv_dtypes": ["bf16", "fp8", "int4"],
        "scale_sets": {"fp8": "f" * 64},
        "bundle": NAME,
        "seats": LOAD.seats,
        "pool_blocks": 100,
    }
    assert "access-control-allow-origin" not in answer.headers


async def test_a_bundle_is_told_by_its_name(fleet: OpenAiApp) -> None:
    answer = await watched(fleet, f"/gateway/bundles/{NAME}")
    assert answer.body == DATA
    assert bundle_read(answer.body).vocab_size == BUNDLE.vocab_size
    other = await watched(fleet, f"/gateway/bundles/{'0' * 64}", request_id="req-2")
    assert (other.status, other.error["code"]) == (404, "not_found")


async def test_what_came_since_is_told_as_a_page(fleet: OpenAiApp, backend: ScriptedBackend) -> None:
    answer = await watched(fleet, "/gateway/events?boot=boot-1&since=3&wait=1.5")
    assert (answer.status, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    page = events_decode(answer.body)
    assert (page.number, page.is_snapshot, page.load) == (4, False, LOAD)
    assert backend.pages_asked == [("boot-1", 3, 1.5)]


async def test_who_knows_nothing_asks_for_nothing_in_particular(fleet: OpenAiApp, backend: ScriptedBackend) -> None:
    assert events_decode((await watched(fleet, "/gateway/events")).body).is_snapshot
    assert backend.pages_asked == [("", 0, 0.0)]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("since=-1", "since"),
        ("since=x", "since"),
        (f"since={2**63}", "since"),
        ("since=" + "9" * 5_000, "since"),
        ("since=%D9%A3", "since"),  # a digit, and none of ours
        ("wait=31", "wait"),
        ("wait=nan", "wait"),
        ("wait=-1", "wait"),
        (f"boot={'b' * 65}", "boot"),
        ("boot", None),
        ("&".join(f"a{number}=1" for number in range(9)), None),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_a_question_that_means_nothing_is_refused_by_name(
    fleet: OpenAiApp, backend: ScriptedBackend, query: str, field: str | None
) -> None:
    answer = await watched(fleet, f"/gateway/events?{query}")
    assert (answer.status, answer.error["param"]) == (400, field)
    assert backend.pages_asked == []


@pytest.mark.parametrize("path", PATHS, ids=["about", "bundle", "events"])
async def test_nobody_but_a_gateway_is_told_anything(fleet: OpenAiApp, backend: ScriptedBackend, path: str) -> None:
    key = {"authorization": f"Bearer {KEY}"}
    unsigned = await Asker(fleet, key).get(path)
    forged = await watched(fleet, path, OTHER)
    elsewhere = await watched(fleet, path, audience="agent-2")
    late = await watched(fleet, path, expires_at=NOW)
    assert {answer.status for answer in (unsigned, forged, elsewhere, late)} == {401}
    customer = await watched(fleet, path, scope="infer")
    assert (customer.status, customer.error["code"]) == (403, "missing_scope")
    assert (await watched(fleet, path, request_id="req-3")).status == 200
    assert (await watched(fleet, path, request_id="req-3")).status == 409  # read off the wire, it opens nothing
    assert len(backend.pages_asked) == ("events" in path)


@pytest.mark.parametrize("path", PATHS, ids=["about", "bundle", "events"])
async def test_an_engine_alone_has_no_such_paths(asker: Asker, path: str) -> None:
    answer = await asker.get(path)
    assert (answer.status, answer.error["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", PATHS, ids=["about", "bundle", "events"])
async def test_what_gateways_ask_is_in_no_record(fleet: OpenAiApp, journal: Journal, path: str) -> None:
    assert (await watched(fleet, path)).status == 200
    assert records(journal) == []


async def test_a_gateway_that_leaves_is_waited_for_no_longer(fleet: OpenAiApp, backend: ScriptedBackend) -> None:
    ended = asyncio.Event()

    async def waits(boot: str, since: int, *, wait_seconds: float = 0.0) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    backend.block_page = waits  # type: ignore[method-assign]
    identity = replace(IDENTITY, deadline=None, scope=WATCH)
    asking = Asker(fleet, {}).call("/gateway/events", method="GET", headers={HEADER: sign(identity, SECRET)})
    asking.left.set()
    await asking.end()
    assert ended.is_set()
