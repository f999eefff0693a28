"""What another TTL would do to a namespace, beside what was counted of it: enough or too little, priced or not."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from controlplane.analytics import models
from controlplane.analytics.models import ReuseCurve
from controlplane.analytics.partitions import partitions_ensure
from controlplane.analytics.whatif import LEAST_TOKENS, what_if
from controlplane.fleet.models import Agent
from tenants.levels import Place
from tenants.models import Namespace
from tests.database.factories import make_agent, make_namespace, publish
from tests.usage.reconciled import minute_add, series_make
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC).replace(second=30, microsecond=0)  # the database's clock says since when there is anything
HOUR = timedelta(hours=1)


@pytest.fixture
def chat() -> Namespace:
    """Policy: 300 s, sliding. An hour of traffic, half of whose 48,000 prompt tokens were hits."""
    partitions_ensure((NOW - timedelta(days=ago)).date() for ago in range(2))
    namespace = make_namespace(make_organisation("acme"), "chat")
    counted(namespace, NOW - HOUR, requests=1, prompt=24_000, cached=0)
    counted(namespace, NOW, requests=1, prompt=24_000, cached=24_000)
    return namespace


def counted(namespace: Namespace, at: datetime, *, requests: int, prompt: int, cached: int) -> None:
    series = series_make("agent-1", namespace.pk)
    type(series).objects.filter(pk=series.pk).update(organisation_id=namespace.organisation_id)
    minute_add(series, at.replace(second=0, microsecond=0), requests, prompt, cached)


def curves(namespace: Namespace, *ratios: float, agent: str = "agent-1", tokens: int = 20_000, **more: Any) -> None:
    """At 60, 300 and 3600 s."""
    curve = {"ttl_mode": "sliding", "limit_share": 1.0, "hit_ratios": ratios, "resident_bytes": [100, 200, 300]}
    told = {"prompt_tokens": tokens, "ttls": [60, 300, 3600], "curves": [curve]}
    ReuseCurve.objects.create(namespace_id=namespace.pk, agent=agent, told=told, **{"at": NOW, **more})


def test_the_policy_in_force_stands_beside_the_one_that_was_asked_for(chat: Namespace) -> None:
    curves(chat, 0.1, 0.4, 0.8)
    found = what_if(chat, ttl_seconds=3600, now=NOW)
    assert (found["is_enough"], found["why"], found["agents"], found["prompt_tokens"]) == (True, None, 1, 20_000)
    assert (found["now"]["ttl_seconds"], found["now"]["hit_ratio"]) == (300, 0.4)
    assert (found["then"]["ttl_seconds"], found["then"]["hit_ratio"]) == (3600, 0.8)
    assert (found["now"]["resident_bytes"], found["then"]["resident_bytes"]) == (200, 300)
    assert [point["hit_ratio"] for point in found["curve"]] == [0.1, 0.4, 0.8]


def test_the_error_is_how_far_the_engines_were_off_where_that_is_more(chat: Namespace) -> None:
    curves(chat, 0.1, 0.4, 0.8)
    found = what_if(chat, ttl_seconds=3600, now=NOW)
    assert found["measured_hit_ratio"] == 0.5
    assert found["then"]["hit_ratio_error"] == pytest.approx(0.1)


def test_the_error_is_the_grids_where_that_is_more(chat: Namespace) -> None:
    curves(chat, 0.1, 0.5, 0.9)
    assert what_if(chat, ttl_seconds=3600, now=NOW)["then"]["hit_ratio_error"] == pytest.approx(0.01)
    assert what_if(chat, ttl_seconds=3500, now=NOW)["then"]["hit_ratio_error"] > 0.3


def test_tokens_and_money_a_day_are_of_the_traffic_that_was_counted(chat: Namespace) -> None:
    curves(chat, 0.1, 0.4, 0.8)
    assert what_if(chat, now=NOW)["now"]["saved_money_per_day"] is None
    models.Price.objects.create(
        model="m", valid_from=NOW.date(), currency="EUR", input=Decimal(3), cached_input=Decimal(1), output=Decimal(9)
    )
    found = what_if(chat, ttl_seconds=3600, now=NOW)
    a_day = 48_000 * 86_400 / found["covered_seconds"]
    assert found["covered_seconds"] == pytest.approx(3600, abs=60)
    assert found["then"]["hit_tokens_per_day"] == pytest.approx(0.8 * a_day, abs=1)
    assert Decimal(found["then"]["saved_money_per_day"]["amount"]) == found["then"]["hit_tokens_per_day"] * Decimal(
        "0.000002"
    )


def test_what_is_left_out_stays_as_it_is(chat: Namespace) -> None:
    publish(Place(chat.organisation, chat), ttl_seconds=3600, limit_share=0.5)
    curves(chat, 0.1, 0.4, 0.8)
    found = what_if(chat, limit_share=1.0, now=NOW)
    assert (found["now"]["limit_share"], found["then"]["limit_share"]) == (0.5, 1.0)
    assert (found["now"]["hit_ratio"], found["then"]["hit_ratio"]) == (0.4, 0.8)


def test_where_nothing_is_cached_now_there_is_nothing_now(chat: Namespace) -> None:
    publish(Place(chat.organisation, chat), prefix_caching=False)
    curves(chat, 0.1, 0.4, 0.8)
    found = what_if(chat, now=NOW)
    assert (found["now"]["hit_ratio"], found["now"]["resident_bytes"], found["then"]["hit_ratio"]) == (0.0, 0, 0.4)


def test_agents_are_weighted_and_what_is_old_is_left_out(chat: Namespace) -> None:
    curves(chat, 0.1, 0.4, 0.8, tokens=10_000)
    curves(chat, 0.1, 0.8, 0.8, tokens=30_000, agent="agent-2", at=NOW - HOUR)
    curves(chat, 0.0, 0.0, 0.0, tokens=90_000, agent="agent-3", at=NOW - 25 * HOUR)
    found = what_if(chat, now=NOW)
    assert (found["agents"], found["now"]["hit_ratio"], found["as_of"]) == (2, 0.7, NOW - HOUR)


def test_an_agent_that_is_gone_is_left_out_and_one_that_restarts_is_not(chat: Namespace) -> None:
    for agent in ("stays", "restarts", "silent", "revoked"):
        make_agent(agent)
        curves(chat, 0.1, 0.4, 0.8, agent=agent)
    seen = {"stays": NOW, "restarts": NOW - timedelta(minutes=5), "silent": NOW - timedelta(minutes=11), "revoked": NOW}
    for agent, at in seen.items():
        Agent.objects.filter(pk=agent).update(last_seen_at=at, revoked_at=NOW if agent == "revoked" else None)
    found = what_if(chat, now=NOW)
    assert (found["agents"], found["now"]["resident_bytes"]) == (2, 2 * 200)


def test_all_of_an_answer_is_as_of_its_moment(chat: Namespace) -> None:
    later, new = NOW + HOUR, make_namespace(chat.organisation, "new")
    partitions_ensure([later.date()])
    counted(new, later - timedelta(minutes=10), requests=1, prompt=24_000, cached=0)
    curves(new, 0.1, 0.4, 0.8, at=later)
    assert what_if(new, now=later)["covered_seconds"] == pytest.approx(600, abs=60)


@pytest.mark.parametrize("tokens", [0, LEAST_TOKENS - 1])
def test_too_little_traffic_is_said_instead_of_a_number(chat: Namespace, tokens: int) -> None:
    curves(chat, 0.1, 0.4, 0.8, tokens=tokens)
    found = what_if(chat, ttl_seconds=3600, now=NOW)
    assert (found["is_enough"], found["now"], found["then"], found["curve"]) == (False, None, None, [])
    assert found["why"].startswith(f"{tokens:,} prompt tokens were seen; 10,000 are the least")


def test_of_a_few_minutes_nothing_is_said(chat: Namespace) -> None:
    other = make_namespace(chat.organisation, "new")
    counted(other, NOW, requests=1, prompt=24_000, cached=0)
    curves(other, 0.1, 0.4, 0.8)
    assert "300 s are the least" in what_if(other, now=NOW)["why"]


def test_the_api_answers_it_and_refuses_what_no_policy_may_say(chat: Namespace, operator: Api) -> None:
    key = Api(make_key(chat.organisation, "stats:read"), operator.client)
    path = "/orgs/acme/namespaces/chat/what-if"
    assert said(key.get(f"{path}?ttl_seconds=3600&ttl_mode=absolute&limit_share=0.5"))["is_enough"] is False
    for bad in ("ttl_seconds=0", "ttl_seconds=604801", "ttl_mode=forever", "limit_share=1.1", "limit_share=nan"):
        answer = key.get(f"{path}?{bad}")
        assert (answer.status_code, said(answer)["errors"][0]["field"]) == (422, bad.partition("=")[0]), bad
