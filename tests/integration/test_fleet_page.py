"""The Fleet page: for operators alone, and in words what the database knows of agents and rollouts."""

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.fleet.models import CanaryMinute, CanaryStanding
from controlplane.rollouts.models import Rollout
from tenants.models import PolicyLevel
from tests.fleet.seen_agents import OTHER, count_minute, hold, make_agent
from tests.web.api import make_organisation

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("still_clock")]


def make_rollout(**details: Any) -> Rollout:
    organisation = make_organisation("acme")
    level, _ = PolicyLevel.objects.get_or_create(organisation=organisation, namespace=None)
    told: dict[str, Any] = {
        "place": "acme",
        "revision": 7,
        "base_revision": 6,
        "strategy": "canary",
        "steps": [50, 100],
        "bake_seconds": 60,
        "why": "Step 1 of 2 bakes for 60 s.",
        "created_by": "kim",
    }
    return Rollout.objects.create(level=level, **{**told, **details})


def seen(client: Client, path: str = "/fleet") -> str:
    """The page's words, in their order."""
    page = client.get(path).content.decode()
    main = page[page.index("<main") : page.index("</main>")] if "<main" in page else page
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", main).split()))


def test_a_fleet_without_agents_says_what_to_do_next(operator_client: Client) -> None:
    words = seen(operator_client)
    assert "No agent has joined yet" in words
    assert "luminet join-token create" in words
    assert "luminet agent --join http://" in words


def test_an_agent_is_shown_with_what_it_is_holds_and_serves(operator_client: Client) -> None:
    make_agent(labels={"tier": "canary"})
    words = seen(operator_client)
    assert "The only agent is in sync" in words
    assert (
        "agent-1 paged · CPU · tier=canary ready isolation not probed in sync 7 · aaaaaaaa… 50 % used – 0 requests 3"
        in words
    )
    assert "luminet-demo · fp8" in words


def test_what_is_wrong_stands_on_top_with_the_reason(operator_client: Client) -> None:
    make_agent("agent-1")
    since = timezone.now().isoformat()
    why = "it has not acknowledged generation 8 since a while"
    make_agent("agent-2", applied_hash=OTHER, conditions={"behind": {"since": since, "why": why}})
    words = seen(operator_client)
    assert "1 of 2 agents is in sync" in words
    assert words.index(why) < words.index("Agents asked")
    assert words.index("agent-2 paged") < words.index("agent-1 paged"), "who is not well comes first"
    assert "catching up" in words


def probed(agent: str, timing: tuple[int, float, float, float] | None = None, **rounds: int) -> None:
    """What gateways found of it in the last hour."""
    now = timezone.now()
    CanaryMinute.objects.create(agent=agent, minute=now.replace(second=0, microsecond=0), **rounds)
    pairs, low, auc, high = timing or (0, None, None, None)
    standing = {"pairs": pairs, "low": low, "auc": auc, "high": high}
    CanaryStanding.objects.create(gateway="gateway-1", agent=agent, at=now, failure="", failed_at=None, **standing)


def test_an_engine_that_keeps_tenants_apart_says_so_and_a_gateway_says_nothing_of_it(operator_client: Client) -> None:
    make_agent("agent-1")
    make_agent("gateway-1", kind="gateway")
    probed("agent-1", isolated=350, unkept=2)
    words = seen(operator_client)
    assert "ready tenants isolated in sync" in words
    assert words.count("isolat") == 1


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({"leaked": 1}, "isolation is broken: 1 probe in the last hour found cached what nobody had sent there"),
        ({"isolated": 9, "leaked": 2}, "isolation is broken: 2 probes in the last hour found cached"),
        ({"isolated": 9, "timing": (900, 0.7, 0.8, 0.9)}, "isolation is broken: time tells what another tenant"),
    ],
)
def test_an_engine_that_does_not_stands_on_top_and_says_why(
    operator_client: Client, found: dict[str, Any], why: str
) -> None:
    make_agent("agent-1")
    make_agent("agent-2")
    probed("agent-1", isolated=9)
    probed("agent-2", **found)
    words = seen(operator_client)
    assert words.index(why) < words.index("Agents asked")
    assert words.index("agent-2 paged") < words.index("agent-1 paged")
    assert "ready isolation broken in sync" in words
    assert '<span class="tag tag--bad">isolation broken</span>' in operator_client.get("/fleet").content.decode()


def test_probes_that_prove_nothing_are_no_proof(operator_client: Client) -> None:
    make_agent("agent-1")
    probed("agent-1", unkept=3, failed=1)
    assert "ready isolation unproven in sync" in seen(operator_client)


def test_silence_is_a_state(operator_client: Client) -> None:
    make_agent(last_seen_at=timezone.now() - timedelta(minutes=1))
    assert "stale" in seen(operator_client)


def test_who_was_taken_out_is_not_shown(operator_client: Client) -> None:
    make_agent(revoked_at=timezone.now())
    assert "No agent has joined yet" in seen(operator_client)


def test_a_rollout_under_way_is_shown_with_how_far_it_is_and_what_decides(operator_client: Client) -> None:
    make_agent()
    finding = {
        "guard": "hit_ratio_drop",
        "changed": 0.6,
        "unchanged": 0.7,
        "bound": 0.05,
        "verdict": "breached",
        "words": "hit ratio 60.0% against 70.0% elsewhere; 5.0% less is the most",
    }
    rollout = make_rollout(baking_since=timezone.now() - timedelta(seconds=20), evidence={"findings": [finding]})
    words = seen(operator_client)
    assert "1 rollout under way" in words
    assert re.search(r"Rollout: acme, revision 7 baking, (20|21) of 60 s", words)
    assert "step 1 of 2" in words
    assert f"{finding['words']} breached" in words
    assert f'href="/rollouts/{rollout.pk}"' in operator_client.get("/fleet").content.decode()


def test_pools_are_shown_by_namespace_and_format_in_the_same_colours_everywhere(operator_client: Client) -> None:
    acme = make_organisation("acme", "chat", "mail", "batch")
    make_agent("agent-1")
    make_agent("agent-2")
    hold("agent-1", acme, "default", fp8=40, int4=8)
    hold("agent-2", acme, "default", fp8=10)
    hold("agent-1", acme, "chat", 30)  # its sidecar is of an older version
    hold("agent-1", acme, "mail", int4=20)
    hold("agent-2", acme, "mail", int4=5)
    hold("agent-2", acme, "batch", fp8=1)
    words = seen(operator_client)
    assert "acme/default · fp8 50 B acme/chat 30 B acme/mail · int4 25 B others 9 B in all pools" in words
    page = operator_client.get("/fleet").content.decode()
    assert 'aria-label="Holds acme/default · fp8 40 B, acme/chat 30 B, acme/mail · int4 20 B, others 8 B"' in page
    assert 'aria-label="Holds acme/default · fp8 10 B, acme/mail · int4 5 B, others 1 B"' in page


def test_the_hit_rate_is_of_an_agents_own_requests_of_the_last_hour(operator_client: Client) -> None:
    acme = make_organisation("acme")
    make_agent("agent-1")
    make_agent("agent-2")
    count_minute("agent-1", acme, "default", "fp8", prompt=1000, cached=714)
    count_minute("agent-1", acme, "default", "fp8", prompt=1000, cached=0, at=timezone.now() - timedelta(hours=2))
    words = seen(operator_client)
    assert "50 % used 71.4 % 1 request 3" in words
    assert "50 % used – 0 requests 3" in words


def test_agents_join_with_a_command_to_copy_and_a_token_made_right_here(operator_client: Client) -> None:
    page = operator_client.get("/fleet").content.decode()
    assert "luminet agent --join http://testserver --token ljt_… --model PATH" in page
    assert 'action="/fleet/join-tokens"' in page


def test_a_rollout_that_ended_is_not(operator_client: Client) -> None:
    make_rollout(state=Rollout.State.DONE, finished_at=timezone.now())
    assert "Rollout:" not in seen(operator_client)


def test_the_part_that_is_refreshed_brings_the_headline_along(operator_client: Client) -> None:
    make_agent()
    page = operator_client.get("/fleet/now").content.decode()
    assert 'id="fleet"' in page
    assert 'id="headline" hx-swap-oob="true"' in page


@pytest.mark.parametrize("path", ["/fleet", "/fleet/now"])
def test_it_is_for_operators_alone(path: str, customer_client: Client) -> None:
    assert customer_client.get(path).status_code == 404


def test_an_open_page_whose_session_ended_says_so(client: Client) -> None:
    assert client.get("/fleet").status_code == 302
    answer = client.get("/fleet/now")
    assert answer.status_code == 286
    assert "Your session has ended." in answer.content.decode()


def test_a_thousand_agents_cost_no_more_queries_than_one(
    operator_client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(30):
        make_agent(f"agent-{number}")
    with django_assert_max_num_queries(16):
        assert "All 30 agents are in sync" in seen(operator_client)
