"""Who is let in, as whom, and that nothing else a client says decides it."""

from dataclasses import replace
from hashlib import sha256

import pytest

from engine_agent.contracts.identity import HEADER, Identity, UsedOnce, sign
from engine_agent.journal.journal import Journal, Opened
from engine_agent.server.app import OpenAiApp, openai_app
from engine_agent.server.guard import KeyGuard, SignedGuard
from tests.unit.server.asking import Asker, chat_body
from tests.unit.server.conftest import LIMITS
from tests.unit.server.identities import IDENTITY, KEY, NOW, SECRET
from tests.unit.server.reading import records
from tests.unit.server.scripted import ByteText, PlainTemplate, ScriptedBackend

CHAT = "/v1/chat/completions"


@pytest.fixture
def fleet(backend: ScriptedBackend, journal: Journal) -> OpenAiApp:
    """An engine behind a gateway, at the time NOW."""
    backend.organisation_id = IDENTITY.organisation_id
    guard = SignedGuard([SECRET], "agent-1", clock=lambda: NOW)
    return openai_app(backend, ByteText(), PlainTemplate(), journal, guard, agent_id="agent-1", limits=LIMITS)


def signed_for(**fields: object) -> dict[str, str]:
    return {HEADER: sign(replace(IDENTITY, deadline=None, **fields), SECRET)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "key", ["", "Bearer", "Bearer ", f"Basic {KEY}", "Bearer sk-other", f"Bearer {KEY}x", "Bearer é"]
)
async def test_without_the_key_nobody_is_let_in(asker: Asker, backend: ScriptedBackend, key: str) -> None:
    for answer in (
        await asker.post(CHAT, chat_body(), headers={"authorization": key}),
        await asker.get("/v1/models", headers={"authorization": key}),
    ):
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert backend.requests == []


async def test_health_and_metrics_need_no_key(asker: Asker) -> None:
    assert (await asker.get("/health", headers={"authorization": ""})).status == 200
    assert (await asker.get("/metrics", headers={"authorization": ""})).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_metrics_are_told_to_no_stranger(asker: Asker, method: str) -> None:
    """Not even to one with a key: they say what every tenant does."""
    answer = await asker.call("/metrics", method=method, host="10.0.0.7").answered()
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert b"luminet_" not in answer.body
    assert (await asker.call("/health", method="GET", host="10.0.0.7").answered()).status == 200


async def test_nothing_a_client_says_makes_it_somebody_else(
    asker: Asker, backend: ScriptedBackend, journal: Journal
) -> None:
    claims = {HEADER: sign(IDENTITY, SECRET), "x-luminet-namespace": "theirs", "openai-organization": "theirs"}
    answer = await asker.post(CHAT, chat_body(), headers=claims)
    assert answer.status == 200
    assert backend.requests[0].namespace == "ns-1"
    assert answer.headers["x-luminet-namespace"] == "default"
    assert records(journal)[0].organisation_id == "org-1"


async def test_a_gateways_word_decides_for_whom(fleet: OpenAiApp, backend: ScriptedBackend, journal: Journal) -> None:
    headers = signed_for(namespace_id="ns-9", namespace="team", request_id="req-9", attempt=2, kind="probe")
    answer = await Asker(fleet, headers).chat()
    assert answer.status == 200
    assert (backend.requests[0].namespace, backend.requests[0].kind) == ("ns-9", "probe")
    assert answer.headers["x-request-id"] == "req-9"
    assert answer.headers["x-luminet-namespace"] == "team"
    opened = records(journal)[0]
    assert (opened.request_id, opened.attempt, opened.kind, opened.namespace_id) == ("req-9", 2, "probe", "ns-9")
    metrics = (await Asker(fleet, {}).get("/metrics")).body.decode()
    assert 'vllm:prefix_cache_queries_total{model_name="tiny"} 0.0' in metrics  # a probe is nobody's traffic


async def test_a_signed_header_opens_once(fleet: OpenAiApp) -> None:
    asker = Asker(fleet, signed_for())
    assert (await asker.chat()).status == 200
    again = await asker.chat()
    assert (again.status, again.error["code"]) == (409, "identity_used")


async def test_what_an_engine_before_this_one_may_have_served_is_refused(
    backend: ScriptedBackend, journal: Journal
) -> None:
    backend.organisation_id = IDENTITY.organisation_id
    times = iter([NOW + 1, NOW + 2, NOW + 2])  # it begins, and is asked twice
    guard = SignedGuard([SECRET], "agent-1", clock=lambda: next(times))
    app = openai_app(backend, ByteText(), PlainTemplate(), journal, guard, agent_id="agent-1", limits=LIMITS)
    assert (await Asker(app, signed_for()).chat()).status == 401
    assert (await Asker(app, signed_for(issued_at=NOW + 1)).chat()).status == 200


async def test_what_cannot_be_remembered_is_asked_to_come_again(backend: ScriptedBackend, journal: Journal) -> None:
    guard = SignedGuard([SECRET], "agent-1", clock=lambda: NOW, used=UsedOnce(most=0))
    app = openai_app(backend, ByteText(), PlainTemplate(), journal, guard, agent_id="agent-1", limits=LIMITS)
    answer = await Asker(app, signed_for()).chat()
    assert (answer.status, answer.error["code"]) == (503, "overloaded")
    assert "retry-after" in answer.headers
    assert backend.requests == []


async def test_a_gateway_that_asks_for_itself_generates_nothing(fleet: OpenAiApp, backend: ScriptedBackend) -> None:
    watching = Asker(fleet, signed_for(scope="watch", organisation_id="fleet", namespace_id="fleet"))
    assert (await watching.chat()).error["code"] == "missing_scope"
    assert backend.requests == []


async def test_what_a_gateway_knows_of_others_reaches_the_engine(fleet: OpenAiApp, backend: ScriptedBackend) -> None:
    assert (await Asker(fleet, signed_for(elsewhere_tokens=48)).chat()).status == 200
    assert backend.requests[0].elsewhere_tokens == 48


async def test_the_key_that_a_gateway_names_stands_in_the_journal(fleet: OpenAiApp, journal: Journal) -> None:
    assert (await Asker(fleet, signed_for(key_id="0192f3a0-7d1c-4c3e")).chat()).status == 200
    assert (await Asker(fleet, signed_for(request_id="another")).chat()).status == 200
    assert [one.key_id for one in records(journal) if isinstance(one, Opened)] == ["0192f3a0-7d1c-4c3e", ""]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_namespace_of_another_organisation_is_not_served_and_nothing_is_counted(
    fleet: OpenAiApp, backend: ScriptedBackend, journal: Journal, stream: bool
) -> None:
    answer = await Asker(fleet, signed_for(organisation_id="o2")).chat(stream=stream)
    assert (answer.status, answer.error["code"]) == (403, "wrong_organisation")
    assert not [name for name in answer.headers if name.startswith("x-luminet")]
    assert backend.cancelled.is_set()
    assert records(journal) == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": f"Bearer {KEY}"},
        {HEADER: "v1.e30.AAAA"},
        {HEADER: sign(IDENTITY, b"o" * 32)},
        {HEADER: sign(replace(IDENTITY, audience="agent-2"), SECRET)},
        {HEADER: sign(replace(IDENTITY, expires_at=NOW), SECRET)},
    ],
)
async def test_what_no_gateway_signed_for_this_engine_and_now_is_refused(
    fleet: OpenAiApp, backend: ScriptedBackend, headers: dict[str, str]
) -> None:
    answer = await Asker(fleet, headers).chat()
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
    assert backend.requests == []


async def test_two_identities_in_one_request_are_none(fleet: OpenAiApp) -> None:
    one, two = signed_for()[HEADER], signed_for(request_id="req-2")[HEADER]
    assert (await Asker(fleet, {HEADER: f"{one}, {two}"}).chat()).status == 401


async def test_the_scope_must_be_inference(fleet: OpenAiApp) -> None:
    answer = await Asker(fleet, signed_for(scope="stats")).chat()
    assert (answer.status, answer.error["code"]) == (403, "missing_scope")


async def test_a_deadline_that_has_passed_is_not_even_asked_for(backend: ScriptedBackend, fleet: OpenAiApp) -> None:
    header = {HEADER: sign(replace(IDENTITY, deadline=1.0), SECRET)}
    answer = await Asker(fleet, header).chat()
    assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")
    assert backend.requests == []


async def test_what_is_left_until_the_deadline_reaches_the_engine(backend: ScriptedBackend, fleet: OpenAiApp) -> None:
    header = {HEADER: sign(replace(IDENTITY, deadline=4e9), SECRET)}
    assert (await Asker(fleet, header).chat()).status == 200
    left = backend.requests[0].deadline_seconds
    assert left is not None
    assert left > 1e8


def test_a_guard_without_a_proper_secret_is_none() -> None:
    for secrets in ([], [b"short"]):
        with pytest.raises(ValueError, match="secret"):
            SignedGuard(secrets, "agent-1")


def test_a_key_is_compared_by_its_hash() -> None:
    guard = KeyGuard(sha256(b"sk-1").digest(), IDENTITY)
    identity: Identity = guard.identify({"authorization": "bearer sk-1"}, "r-1")
    assert identity == replace(IDENTITY, request_id="r-1")
