"""How agents come into the fleet: join tokens, credentials, taking over, and what they cannot do with them."""

import base64
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from controlplane.fleet import keys
from controlplane.fleet.agents import agent_drain, agent_revoke
from controlplane.fleet.cadence import cadence_seconds
from controlplane.fleet.enrolment import Credentials, agent_for_token, credentials, enrol
from controlplane.fleet.errors import (
    AgentRefused,
    MalformedRequest,
    NameTaken,
    Revoked,
    UnknownToken,
    WrongKind,
    WrongName,
)
from controlplane.fleet.join_tokens import (
    join_token_create,
    join_token_revoke,
    join_token_state,
    standing_token_renew,
)
from controlplane.fleet.models import Agent, JoinToken
from controlplane.serve import run_migrate
from engine_agent.contracts.sealing import command_open, command_seal, verifying_key
from tenants.actor import SYSTEM
from tenants.crypto import secret_hash, secret_text
from tenants.errors import InvalidFields
from tenants.models import AuditRecord
from tests.database.factories import about_agent, enrol_agent, make_agent, make_group, make_join_token

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def joined(
    secret: str, name: str | None = "agent-1", *, kind: Any = "engine", now: datetime | None = None
) -> Credentials:
    return enrol(
        token=secret, kind=kind, name=name, about=about_agent(), now=now or timezone.now(), address="192.0.2.7"
    )


def token_of(one: Credentials) -> str:
    assert one.token is not None
    return one.token


def test_a_machine_that_joins_gets_all_it_needs() -> None:
    token, secret = make_join_token(group=make_group("gpu"))
    given = joined(secret.secret)
    assert given.as_json() == {
        "agent": "agent-1",
        "kind": "engine",
        "group": "gpu",
        "token": given.token,
        "cadence_seconds": 0.5,
        "now": given.now,
        "key_number": 1,
        "broker": {
            "url": given.broker["url"],
            "prefix": "agent.agent-1:",
            "queue": "agent.agent-1",
        },
        "keys": {
            "verifying": base64.b64encode(keys.verifying_key()).decode(),
            "sealing": base64.b64encode(keys.sealing_key("agent-1", 1)).decode(),
            "identity": base64.b64encode(keys.identity_secret("agent-1", 1)).decode(),
            "check": None,
        },
    }
    assert agent_for_token(token_of(given), timezone.now()).group.slug == "gpu"
    token.refresh_from_db()
    assert (token.uses, token.uses_left, join_token_state(token, now=timezone.now())) == (1, 0, "spent")


def test_a_command_sealed_for_it_opens_with_what_it_was_given_and_not_with_what_another_was() -> None:
    one, other = enrol_agent("agent-1"), enrol_agent("agent-2")
    sealed = command_seal(b"news", agent="agent-1", key=keys.sealing_key("agent-1", 1), signing=keys.signing_key())
    own, theirs = (base64.b64decode(each.keys["sealing"] or "") for each in (one, other))
    verifying = verifying_key(base64.b64decode(one.keys["verifying"] or ""))
    assert command_open(sealed, agent="agent-1", key=own, verifying=verifying) == b"news"
    assert own != theirs


def test_a_gateway_learns_how_to_check_keys_and_an_engine_does_not() -> None:
    gateway = enrol_agent("gateway-1", kind="gateway", backend="gateway")
    assert gateway.keys["identity"] is None
    assert gateway.keys["check"] is not None


def test_what_an_agent_is_given_is_in_no_representation_and_in_no_table() -> None:
    given = enrol_agent("agent-1")
    for secret in (given.token, given.broker["url"], given.keys["sealing"]):
        assert str(secret) not in repr(given)
    row = Agent.objects.filter(pk="agent-1").values().get()
    assert token_of(given) not in str(row)
    trail = " ".join(f"{one.before}{one.after}{one.target}" for one in AuditRecord.objects.all())
    assert token_of(given) not in trail


def test_an_agent_without_a_name_is_given_one_of_its_kind() -> None:
    assert enrol_agent(None).agent.startswith("agent-")
    assert enrol_agent(None, kind="gateway", backend="gateway").agent.startswith("gateway-")


def test_its_labels_are_those_it_brings_along() -> None:
    assert make_agent(labels={"tier": "canary"}).labels == {"tier": "canary"}


def test_the_cadence_goes_by_how_many_there_are() -> None:
    base = make_agent("agent-1")
    Agent.objects.bulk_create(
        Agent(id=f"more-{n}", kind="engine", group=base.group, token_hash=n.to_bytes(32, "big")) for n in range(499)
    )
    assert credentials(base, rotate=False, now=timezone.now()).cadence_seconds == cadence_seconds(500) > 2


def test_it_is_written_down_who_joined_with_what_from_where() -> None:
    given = enrol_agent("agent-1")
    record = AuditRecord.objects.get(verb="agent.enrol")
    assert (record.target, record.actor_name, record.address) == (
        f"agent {given.agent}",
        "join token first machines",
        "192.0.2.7",
    )


# Join tokens


def spoilt() -> Iterator[tuple[str, str]]:
    _, secret = make_join_token("spent")
    joined(secret.secret, "spender")
    yield "spent", secret.secret
    expired, secret = make_join_token("expired")
    JoinToken.objects.filter(pk=expired.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    yield "expired", secret.secret
    revoked, secret = make_join_token("revoked")
    join_token_revoke(actor=SYSTEM, token=revoked)
    yield "revoked", secret.secret
    yield "never made", secret_text("ljt")
    yield "mistyped", secret.secret[:-1] + ("0" if secret.secret[-1] != "0" else "1")
    yield "an agent's", token_of(enrol_agent("agent-9"))
    yield "empty", ""
    yield "no ASCII", "ljt_" + "é" * 49


def test_a_token_that_is_not_good_is_refused_and_never_said_why() -> None:
    for what, secret in spoilt():
        count = Agent.objects.count()
        with pytest.raises(UnknownToken) as refused:
            joined(secret)
        assert str(refused.value) == "This token is not valid.", what
        assert Agent.objects.count() == count


def test_without_a_good_token_nothing_else_is_looked_at() -> None:
    """Or whoever has none could learn which names there are."""
    make_agent("agent-1")
    with pytest.raises(UnknownToken):
        enrol(token=secret_text("ljt"), kind="nothing", name="agent-1", about=None, now=NOW, address="192.0.2.7")


def test_a_token_for_several_is_good_for_so_many_and_no_more() -> None:
    _, secret = make_join_token(uses=2)
    assert {joined(secret.secret, name).agent for name in ("one", "two")} == {"one", "two"}
    with pytest.raises(UnknownToken):
        joined(secret.secret, "three")


def test_a_token_without_a_number_is_good_until_it_expires() -> None:
    token, secret = make_join_token(uses=None)
    for name in ("one", "two", "three"):
        joined(secret.secret, name)
    assert token.expires_at is not None
    with pytest.raises(UnknownToken):
        joined(secret.secret, "four", now=token.expires_at)


@pytest.mark.django_db(transaction=True)
def test_two_that_come_at_once_with_the_last_use_are_one_agent() -> None:
    _, secret = make_join_token()
    outcomes: list[str] = []
    barrier = threading.Barrier(4)

    def come(name: str) -> None:
        barrier.wait()
        try:
            outcomes.append(joined(secret.secret, name).agent)
        except UnknownToken:
            outcomes.append("refused")
        finally:
            connection.close()

    threads = [threading.Thread(target=come, args=[f"agent-{number}"]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("refused") == 3
    assert Agent.objects.count() == 1


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], type[AgentRefused], str]] = {
    "another kind": ({"kind": "gateway"}, {}, WrongKind, "kind: this token is for the kind gateway, found engine"),
    "no kind": ({}, {"kind": "toaster"}, MalformedRequest, "kind: must be one of engine, gateway"),
    "a list as kind": ({}, {"kind": ["engine"]}, MalformedRequest, "kind: must be one of engine, gateway"),
    "another name": ({"agent": "agent-7"}, {}, WrongName, "name: this token is for agent-7, found 'agent-1'"),
    "no slug": ({}, {"name": "Agent 1"}, MalformedRequest, "name: 'Agent 1' is none"),
    "no text as name": ({}, {"name": 7}, MalformedRequest, "name: must be text or null"),
    "a name with a colon": ({}, {"name": "a:b"}, MalformedRequest, "name: 'a:b' is none"),
    "nothing about itself": ({}, {"about": None}, MalformedRequest, "about: must be an object"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_name_and_costs_no_use(case: str) -> None:
    bound, asked, error, words = REFUSED[case]
    token, secret = make_join_token(**bound)
    given = {"kind": "engine", "name": "agent-1", "about": about_agent(), **asked}
    with pytest.raises(error, match=words.replace("(", r"\(")):
        enrol(token=secret.secret, now=timezone.now(), address="192.0.2.7", **given)
    token.refresh_from_db()
    assert (token.uses, token.uses_left) == (0, 1)
    assert not Agent.objects.exists()
    joined(secret.secret, bound.get("agent", "agent-1"), kind=bound.get("kind", "engine"))


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ("name", {"name": " "}),
        ("kind", {"kind": "toaster"}),
        ("agent", {"agent": "Agent 1"}),
        ("uses", {"uses": 0}),
        ("uses", {"uses": 100_001}),
        ("uses", {"agent": "agent-1", "uses": 2}),
        ("uses", {"agent": "agent-1", "uses": None}),
        ("expires_in_seconds", {"expires_in": timedelta(seconds=59)}),
        ("expires_in_seconds", {"expires_in": timedelta(days=367)}),
    ],
)
def test_a_join_token_that_makes_no_sense_cannot_be_made(field: str, wanted: dict[str, Any]) -> None:
    given = {"name": "x", "group": make_group("gpu"), "expires_in": timedelta(hours=1), **wanted}
    with pytest.raises(InvalidFields) as refused:
        join_token_create(actor=SYSTEM, **given)
    assert [one.field for one in refused.value.problems] == [field]


# Names and taking over


def test_a_name_that_is_taken_is_refused_and_its_owner_keeps_its_credentials() -> None:
    owner = enrol_agent("agent-1")
    _, secret = make_join_token()
    with pytest.raises(NameTaken, match="there is an agent agent-1"):
        joined(secret.secret)
    assert agent_for_token(token_of(owner), timezone.now()).key_number == 1


def test_a_token_bound_to_a_name_takes_that_agent_over() -> None:
    before = enrol_agent("agent-1", labels={"tier": "canary"})
    history = {"desired_generation": 7, "desired_hash": "a" * 64, "labels": {"tier": "set by an operator"}}
    past = {"applied_generation": 7, "heartbeat": {"boot": "x"}, "lost_reports": 3, "spool": "s", "spool_number": 9}
    Agent.objects.filter(pk="agent-1").update(**history, **past, conditions={"x": {}}, last_seen_at=timezone.now())
    _, secret = make_join_token(group=make_group("gpu"), agent="agent-1")
    after = joined(secret.secret, None)
    assert (after.agent, after.key_number, after.group) == ("agent-1", 2, "gpu")
    assert after.keys["sealing"] != before.keys["sealing"]
    assert after.keys["identity"] != before.keys["identity"]
    assert after.broker["url"] != before.broker["url"]
    with pytest.raises(UnknownToken):
        agent_for_token(token_of(before), timezone.now())
    agent = agent_for_token(token_of(after), timezone.now())
    assert {name: getattr(agent, name) for name in history} == history
    assert (agent.applied_generation, agent.heartbeat, agent.lost_reports, agent.spool, agent.spool_number) == (
        *(0, {}, 0, "", 0),
    )
    assert (agent.conditions, agent.last_seen_at) == ({}, None)


def test_a_takeover_by_the_other_kind_is_refused() -> None:
    enrol_agent("agent-1")
    _, secret = make_join_token(agent="agent-1")
    with pytest.raises(WrongKind, match="the name agent-1 is for the kind engine, found gateway"):
        joined(secret.secret, kind="gateway")


def test_a_revoked_agent_comes_back_under_new_credentials_with_any_join_token() -> None:
    before = enrol_agent("agent-1")
    agent_revoke(actor=SYSTEM, agent=Agent.objects.get())
    after = enrol_agent("agent-1")
    assert after.key_number == before.key_number + 1
    assert agent_for_token(token_of(after), timezone.now()).revoked_at is None
    with pytest.raises(UnknownToken):
        agent_for_token(token_of(before), timezone.now())


# Its own token


def test_a_new_token_ends_the_old_one_when_it_is_first_used() -> None:
    first = enrol_agent("agent-1")
    agent = agent_for_token(token_of(first), timezone.now())
    second = credentials(agent, rotate=True, now=timezone.now())
    assert agent_for_token(token_of(first), timezone.now()).pk == "agent-1"  # it may not have got the answer
    assert agent_for_token(token_of(second), timezone.now()).pk == "agent-1"
    with pytest.raises(UnknownToken):
        agent_for_token(token_of(first), timezone.now())
    assert agent_for_token(token_of(second), timezone.now()).pk == "agent-1"
    assert replace(second, token=None, now=0.0) == replace(first, token=None, now=0.0)


def test_of_two_new_tokens_the_later_one_counts() -> None:
    agent = make_agent("agent-1")
    lost, kept = (credentials(agent, rotate=True, now=timezone.now()) for _ in range(2))
    with pytest.raises(UnknownToken):
        agent_for_token(token_of(lost), timezone.now())
    assert agent_for_token(token_of(kept), timezone.now()).pk == "agent-1"


def test_credentials_asked_for_again_bring_no_token_along() -> None:
    first = enrol_agent("agent-1")
    again = credentials(Agent.objects.get(), rotate=False, now=timezone.now())
    assert again.token is None
    assert again.keys == first.keys
    assert agent_for_token(token_of(first), timezone.now()).next_token_hash is None


def test_a_revoked_agent_is_told_so_and_gets_no_new_token() -> None:
    given = enrol_agent("agent-1")
    agent = Agent.objects.select_related("group").get()
    agent_revoke(actor=SYSTEM, agent=agent)
    with pytest.raises(Revoked, match="agent-1 was revoked"):
        agent_for_token(token_of(given), timezone.now())
    with pytest.raises(Revoked):
        credentials(agent, rotate=True, now=timezone.now())


def test_who_was_taken_over_meanwhile_gets_no_new_token() -> None:
    enrol_agent("agent-1")
    before = Agent.objects.select_related("group").get()
    _, secret = make_join_token(agent="agent-1")
    joined(secret.secret)
    with pytest.raises(Revoked):
        credentials(before, rotate=True, now=timezone.now())


@pytest.mark.parametrize("token", ["", "lat_", "x", "lat_" + "0" * 49, "lat_" + "é" * 49, "lmk_" + "0" * 49])
def test_a_token_that_is_none_is_unknown(token: str) -> None:
    make_agent("agent-1")
    with pytest.raises(UnknownToken):
        agent_for_token(token, timezone.now())


def test_an_agents_token_costs_one_question() -> None:
    given = enrol_agent("agent-1")
    with CaptureQueriesContext(connection) as queries:
        assert agent_for_token(token_of(given), timezone.now()).group.slug == "default"
    assert len(queries) == 1


def test_an_agent_that_is_taken_over_owes_what_it_owed() -> None:
    """A drain that the machine before did not finish is the next one's to do."""
    operation = agent_drain(actor=SYSTEM, agent=make_agent("agent-1"))
    _, secret = make_join_token(agent="agent-1")
    joined(secret.secret)
    operation.refresh_from_db()
    assert operation.state == "running"
    assert Agent.objects.get().is_draining


# The standing token


def test_the_environments_token_is_good_for_a_day_with_every_start() -> None:
    secret = secret_text("ljt")
    began = timezone.now()
    first = standing_token_renew(secret, now=began)
    again = standing_token_renew(secret, now=began + timedelta(hours=20))
    assert first.pk == again.pk
    for name in ("one", "two"):
        joined(secret, name, now=began + timedelta(hours=43))
    with pytest.raises(UnknownToken):
        joined(secret, "three", now=began + timedelta(hours=45))
    assert AuditRecord.objects.filter(verb="join-token.create").count() == 1


def test_a_standing_token_that_an_operator_revoked_stays_revoked() -> None:
    secret = secret_text("ljt")
    join_token_revoke(actor=SYSTEM, token=standing_token_renew(secret, now=timezone.now()))
    standing_token_renew(secret, now=timezone.now())
    with pytest.raises(UnknownToken):
        joined(secret)


def test_with_the_standing_token_nobody_comes_back_who_was_taken_out() -> None:
    secret = secret_text("ljt")
    standing_token_renew(secret, now=timezone.now())
    joined(secret)
    agent_revoke(actor=SYSTEM, agent=Agent.objects.get())
    with pytest.raises(NameTaken):
        joined(secret)
    assert Agent.objects.get().revoked_at is not None
    _, other = make_join_token()
    assert joined(other.secret).key_number == 2


def test_a_mistyped_standing_token_is_told(settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, join_token="ljt_" + "0" * 49)
    with pytest.raises(SystemExit, match="LUMINET_JOIN_TOKEN: is mistyped"):
        run_migrate()


def test_migrating_registers_the_token_of_the_environment(settings: Settings) -> None:
    secret = secret_text("ljt")
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, join_token=secret)
    run_migrate()
    assert JoinToken.objects.get(hash=secret_hash(secret)).name == "standing"
    assert joined(secret).group == "default"
