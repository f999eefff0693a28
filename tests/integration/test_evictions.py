"""From what agents tell of their caches to what people are told: who evicts whom, formats, and pins that are held."""

import html
import itertools
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.analytics.agents import fleet_pools, pools_held
from controlplane.analytics.columns import BLOCK_COLUMNS
from controlplane.analytics.displaced import LEVELS
from controlplane.analytics.evictions import CANARY_NAME, pairs_by_victim, pairs_of_fleet, taken
from controlplane.analytics.models import Eviction, EvictionCounter, PinHeld, PoolMinute, RefusedRow, Residence
from controlplane.analytics.retention import retain
from controlplane.analytics.windows import window_of
from engine_agent.contracts.protocol import CANARIES
from engine_agent.contracts.wire import Batch, Report, batch_decode, batch_encode
from tenants.models import Namespace, User
from tests.database.factories import make_agent, make_group, make_namespace, make_operator, make_pin
from tests.usage.evicted import evict
from tests.usage.sums import store
from tests.web.api import Api, make_key, make_operator_token, make_organisation, said

pytestmark = pytest.mark.django_db


@pytest.fixture
def chat() -> Namespace:
    return make_namespace(make_organisation("acme"), "chat")


@pytest.fixture
def noisy() -> Namespace:
    return make_organisation("globex").namespaces.get()


@pytest.fixture
def operator(client: Client) -> Api:
    return Api(make_operator_token(make_operator()), client)


def lost(victim: Any, by: Any, blocks: int, *, cause: str = "pressure") -> dict[str, Any]:
    named = [str(one.pk) if isinstance(one, Namespace) else one for one in (victim, by)]
    return {
        "victim": named[0],
        "by": named[1],
        "cause": cause,
        "blocks": blocks,
        "bytes": blocks * 64,
        "seconds_ago": 1,
    }


def levels(
    *evictions: Any, boot: str = "b1", at: datetime | None = None, held: dict[Namespace, int] | None = None, **more: Any
) -> Report:
    gone = dict.fromkeys(("host_bytes", *BLOCK_COLUMNS), 0)
    told = {
        "boot": boot,
        "at": (at or timezone.now()).timestamp(),
        "pool": {"capacity_bytes": 100, "used_bytes": 5, "evictable_bytes": 1},
        "preemptions": 0,
        "namespaces": {str(one.pk): {"resident_bytes": size, **gone} for one, size in (held or {}).items()},
        "evictions": list(evictions),
    }
    report = Report("levels", {**told, **more})
    return batch_decode(batch_encode(Batch(0.0, "s", 1, [report], None))).reports[0]


def blocks() -> dict[tuple[int, int, str], int]:
    """Of the last day, from the hours and what is smaller."""
    now = timezone.now() + timedelta(seconds=1)
    victims = set(Eviction.objects.values_list("victim_id", flat=True))
    pairs = [one for victim in victims for one in pairs_by_victim(window_of("24h", now), victim)]
    return {(one.victim_id, one.by_id, one.cause): one.blocks for one in pairs}


# Exactly once


def test_a_report_told_again_or_late_counts_nothing_twice_and_a_lost_one_loses_nothing(
    chat: Namespace, noisy: Namespace
) -> None:
    first, second, third = (levels(lost(chat, noisy, number)) for number in (3, 5, 9))
    store(first)
    store(first)
    store(third)  # the second comes late
    store(second)
    store(third, first)
    assert blocks() == {(chat.pk, noisy.pk, "pressure"): 9}
    for level in LEVELS:
        rows = Eviction.objects.filter(level=level).values_list("blocks", "bytes")
        assert [sum(column) for column in zip(*rows, strict=True)] == [9, 9 * 64]


def test_a_restart_of_an_engine_begins_anew_and_what_was_before_stays(chat: Namespace, noisy: Namespace) -> None:
    store(levels(lost(chat, noisy, 5)))
    store(levels(lost(chat, noisy, 2), boot="b2"))
    store(levels(lost(chat, noisy, 6)))  # of the boot before, late
    store(levels(lost(chat, noisy, 4), boot="b2"))
    assert blocks() == {(chat.pk, noisy.pk, "pressure"): 10}


def test_agents_add_up_and_causes_stay_apart(chat: Namespace, noisy: Namespace) -> None:
    for agent in ("agent-1", "agent-2"):
        store(levels(lost(chat, noisy, 2), lost(chat, chat, 3, cause="quota"), lost(chat, chat, 4)), agent=agent)
    assert blocks() == {
        (chat.pk, noisy.pk, "pressure"): 4,
        (chat.pk, chat.pk, "quota"): 6,
        (chat.pk, chat.pk, "pressure"): 8,
    }
    (found,) = taken(window_of("24h", timezone.now()), [chat.pk, noisy.pk]).values()
    assert (found.own_blocks, found.others_blocks, found.own_pressed_blocks) == (14, 4, 8)


def test_a_window_begins_where_it_says_within_five_minutes(chat: Namespace, noisy: Namespace) -> None:
    now = datetime(2026, 11, 22, 12, 30, 15, tzinfo=UTC)
    for ago in (timedelta(minutes=50), timedelta(hours=23, minutes=50), timedelta(hours=25), timedelta(days=6)):
        evict(chat, noisy, 1, at=now - ago)
    found = {name: pairs_by_victim(window_of(name, now), chat.pk)[0].blocks for name in ("1h", "24h", "7d", "30d")}
    assert found == {"1h": 1, "24h": 2, "7d": 4, "30d": 4}


# What is believed


def test_who_is_foreign_or_gone_takes_as_others_and_cannot_be_told_to_have_lost(chat: Namespace) -> None:
    agent = make_agent().pk
    theirs = make_namespace(make_organisation("umbrella"), group=make_group("other"))
    refused = store(levels(lost(chat, theirs, 1), lost(chat, "999999", 2), lost(chat, "*", 3)), agent=agent)
    assert not refused
    assert blocks() == {(chat.pk, 0, "pressure"): 6}
    (problem,) = store(levels(lost(theirs, chat, 1)), agent=agent)
    assert problem["field"] == "evictions.0.victim"
    assert theirs.pk not in {one[0] for one in blocks()}


def test_what_the_isolation_canary_took_is_said_and_what_it_lost_is_nobodys(chat: Namespace) -> None:
    assert not store(levels(lost(chat, CANARIES[0], 2), lost(CANARIES[0], chat, 5)))
    (pair,) = pairs_of_fleet(window_of("24h", timezone.now()))
    assert (pair.victim, pair.by, pair.blocks) == ("acme/chat", CANARY_NAME, 2)


def test_a_bad_piece_costs_a_piece(chat: Namespace, noisy: Namespace) -> None:
    bad = {**lost(chat, noisy, 1), "blocks": -1}
    formats = {str(chat.pk): {"fp8": 1}}
    refused = store(levels(bad, lost(chat, noisy, 4), held={chat: 10, noisy: 7}, formats=formats, pins=[{}]))
    assert sorted(one["field"] for one in refused) == ["evictions.0.blocks", f"formats.'{chat.pk}'", "pins.0.id"]
    assert RefusedRow.objects.count() == 3
    assert blocks() == {(chat.pk, noisy.pk, "pressure"): 4}
    assert set(Residence.objects.values_list("resident_bytes", flat=True)) == {10, 7}


def test_a_sidecar_of_before_tells_less_and_is_counted_as_before(chat: Namespace) -> None:
    report = levels(held={chat: 10})
    told = {name: one for name, one in report.told.items() if name != "evictions"}
    assert not store(Report("levels", told))
    residence = Residence.objects.get()
    assert (residence.resident_bytes, residence.formats) == (10, {})


def test_what_a_sidecar_of_tomorrow_tells_besides_is_ignored(chat: Namespace, noisy: Namespace) -> None:
    assert not store(levels(lost(chat, noisy, 1), held={chat: 10}, weather={"is": "fine"}))
    assert blocks() == {(chat.pk, noisy.pk, "pressure"): 1}


def test_as_many_questions_for_many_agents_and_pairs_as_for_few(chat: Namespace, noisy: Namespace) -> None:
    pin, rising = make_pin(chat), itertools.count(1)

    def questions(many: int) -> int:
        others = [noisy, chat, *CANARIES, "*"][:many]
        pairs = [lost(chat, one, next(rising)) for one in others]
        with CaptureQueriesContext(connection) as found:
            store(*(levels(*pairs, held={chat: 5}, pins=[told_pin(pin.pk, chat)]) for _ in range(many)))
        return len(found)

    questions(1)  # partitions and series are made
    assert questions(5) == questions(2)


# Formats


def test_pools_are_by_namespace_and_format_as_agents_tell_them(chat: Namespace, noisy: Namespace) -> None:
    formats = {str(chat.pk): {"fp8": 60, "int4": 40}}
    store(levels(held={chat: 100, noisy: 50}, formats=formats))
    store(levels(held={chat: 30}, formats={str(chat.pk): {"fp8": 30}}), agent="agent-2")
    found = pools_held(["agent-1"], top=2)["agent-1"]
    assert [(one.namespace, one.kv_dtype, one.bytes) for one in found.top] == [
        ("acme/chat", "fp8", 60),
        ("globex/default", "", 50),
    ]
    assert (found.others, found.others_bytes) == (0, 40), "chat is named already, in another format"
    assert pools_held(["agent-1"], top=1)["agent-1"].others == 1
    fleet = fleet_pools(["agent-1", "agent-2"], top=1)
    assert [(one.namespace, one.kv_dtype, one.bytes) for one in fleet.top] == [("acme/chat", "fp8", 90)]
    assert fleet.by_agent == {"agent-1": (60, 90), "agent-2": (30, 0)}
    store(levels(held={noisy: 50}))
    assert Residence.objects.get(agent="agent-1", namespace_id=chat.pk).formats == {}


# Pins


def told_pin(pin: Any, namespace: Namespace, **more: Any) -> dict[str, Any]:
    told = {"id": str(pin), "namespace": str(namespace.pk), "state": "active", "is_warming": False, "problem": ""}
    return {**told, "wanted_tokens": 64, "resident_tokens": 64, "resident_bytes": 2048, **more}


def test_pins_are_as_each_agent_last_told_and_those_it_names_no_longer_are_gone(chat: Namespace) -> None:
    one, two = make_pin(chat), make_pin(chat, "other")
    store(levels(pins=[told_pin(one.pk, chat), told_pin(two.pk, chat)]))
    store(levels(pins=[told_pin(one.pk, chat)]), agent="agent-2")
    store(levels(pins=[told_pin(one.pk, chat, resident_tokens=16)]))
    assert set(PinHeld.objects.values_list("agent", "pin_id", "resident_tokens")) == {
        ("agent-1", one.pk, 16),
        ("agent-2", one.pk, 64),
    }
    store(levels())  # of an older sidecar, that says nothing of pins
    assert PinHeld.objects.count() == 2
    assert store(levels(pins="many"))  # refused: it says nothing
    assert PinHeld.objects.count() == 2
    store(levels(pins=[]))
    assert PinHeld.objects.get().agent == "agent-2"


def test_a_pins_page_and_its_list_say_what_each_agent_holds(chat: Namespace, customer_client: Client) -> None:
    from tenants.models import Member

    user = User.objects.get(email="someone@acme.example")
    of = chat.organisation
    Member.objects.create(organisation=of, email=user.email, role="editor", user=user, joined_at=timezone.now())
    pin = make_pin(chat)
    states: dict[str, dict[str, Any]] = {
        "agent-1": {},
        "agent-2": {"state": "content_missing", "wanted_tokens": None, "resident_tokens": 0, "resident_bytes": 0},
        "agent-3": {"is_warming": True, "resident_tokens": 16, "resident_bytes": 512},
        "agent-4": {"state": "over_budget", "resident_tokens": 0, "problem": "9 bytes are too many"},
    }
    for agent, more in states.items():
        store(levels(pins=[told_pin(pin.pk, chat, **more)]), agent=agent)
    page = customer_client.get("/orgs/acme/namespaces/chat/pins").content.decode()
    told = html.unescape(" ".join(re.sub(r"<[^>]+>", " ", page).split()))
    assert "agent-1 held 64 tokens, 2.0 KiB, told at " in told
    assert "agent-2 content missing told at " in told
    assert "agent-3 being warmed 16 of 64 tokens, 512 B, told at " in told
    assert re.search(r"agent-4 no room 0 of 64 tokens, 2.0 KiB, told at \S+ UTC : 9 bytes are too many", told)
    api = Api(make_key(of, "policy:read"), Client())
    (item,) = said(api.get("/orgs/acme/namespaces/chat/pins"))["items"]
    shown = {one["agent"]: (one["state"], one["is_warming"], one["resident_tokens"]) for one in item["agents"]}
    assert shown["agent-1"] == ("active", False, 64)
    assert shown["agent-2"] == ("content_missing", False, 0)
    assert shown["agent-3"] == ("active", True, 16)
    assert all(one["as_of"] for one in item["agents"])


def test_what_an_agent_says_of_a_pin_shows_in_the_pins_own_namespace_alone(chat: Namespace, noisy: Namespace) -> None:
    pin = make_pin(chat)
    store(levels(pins=[told_pin(pin.pk, noisy), told_pin(uuid4(), chat)]))
    api = Api(make_key(chat.organisation, "policy:read"), Client())
    (item,) = said(api.get("/orgs/acme/namespaces/chat/pins"))["items"]
    assert item["agents"] == []


# REST and pages


def test_operators_are_told_names_and_customers_sums(chat: Namespace, noisy: Namespace, operator: Api) -> None:
    store(levels(lost(chat, noisy, 6), lost(chat, chat, 2), lost(noisy, chat, 1)))
    path = "/orgs/acme/namespaces/chat/evictions"
    told = said(operator.get(path))
    assert told["by_fleet_pressure"] == {"blocks": 6, "bytes": 384}
    assert told["by_own_traffic"] == {"blocks": 2, "bytes": 128}
    assert [(one["by"], one["blocks"]) for one in told["evicted_by"]] == [("globex/default", 6), ("acme/chat", 2)]
    assert [(one["victim"], one["blocks"]) for one in told["evicts"]] == [("globex/default", 1)]
    answer = Api(make_key(chat.organisation, "stats:read"), Client()).get(path)
    customers = said(answer)
    assert customers["by_fleet_pressure"] == told["by_fleet_pressure"]
    assert (customers["evicted_by"], customers["evicts"]) == (None, None)
    assert "globex" not in answer.content.decode()
    everybody = said(operator.get("/fleet/evictions?window=24h"))
    assert [(one["victim"], one["by"], one["blocks"]) for one in everybody["pairs"]] == [
        ("acme/chat", "globex/default", 6),
        ("globex/default", "acme/chat", 1),
    ]


def test_customers_ask_for_their_own_alone(chat: Namespace, noisy: Namespace) -> None:
    api = Api(make_key(chat.organisation), Client())
    assert api.get("/fleet/evictions").status_code == 403
    assert api.get("/orgs/globex/namespaces/default/evictions").status_code == 404
    bound = Api(make_key(chat.organisation, "stats:read", namespaces=[chat]), Client())
    assert bound.get("/orgs/acme/namespaces/chat/evictions").status_code == 200
    assert bound.get("/orgs/acme/namespaces/default/evictions").status_code == 404


def test_the_overview_names_the_pairs_of_the_fleet(chat: Namespace, noisy: Namespace, operator_client: Client) -> None:
    assert "No namespace evicted another" in operator_client.get("/").content.decode()
    evict(chat, noisy, 12)
    evict(chat, chat, 99)
    page = operator_client.get("/").content.decode()
    assert "globex/default evicted acme/chat most: 12 blocks" in page
    assert 'href="/orgs/acme/namespaces/chat#evictions"' in page


# How long


def test_pairs_are_kept_for_their_time_and_counters_as_long_as_their_engine_tells(
    chat: Namespace, noisy: Namespace
) -> None:
    now = timezone.now()
    make_agent("agent-1")
    for days in (1, 10, 39, 41):
        evict(chat, noisy, 1, at=now - timedelta(days=days))
    for boot in ("tells", "silent"):
        told = {"agent": "agent-1", "boot": boot, "victim": "1", "by": "2", "cause": "pressure"}
        EvictionCounter.objects.create(**told, at=now - timedelta(days=41))
    PoolMinute.objects.create(agent="agent-1", minute=now, boot="tells")
    for agent in ("agent-1", "gone"):
        row = {"agent": agent, "pin_id": uuid4(), "namespace_id": 1, "state": "active", "is_warming": False}
        PinHeld.objects.create(**row, at=now)
    retain(now)
    assert sorted(Eviction.objects.values_list("level", flat=True)) == [300, 3_600, 3_600, 3_600]
    assert EvictionCounter.objects.get().boot == "tells"
    assert PinHeld.objects.get().agent == "agent-1"
