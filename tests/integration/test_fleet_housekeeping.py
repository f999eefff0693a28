"""What is kept of agents goes after a while, and nothing that still counts goes with it."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from controlplane.celery import app
from controlplane.fleet.housekeeping import housekeeping
from controlplane.fleet.models import Agent, AgentGeneration, JoinToken
from controlplane.fleet.tasks import fleet_housekeeping
from tests.database.factories import make_agent, make_join_token

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def generations(*ages: int, applied: int) -> Agent:
    agent = make_agent("agent-1")
    for number, days in enumerate(ages, start=1):
        at = NOW - timedelta(days=days)
        AgentGeneration.objects.create(agent=agent, number=number, hash=f"{number:064}", at=at)
    Agent.objects.update(applied_generation=applied)
    return agent


def left() -> list[int]:
    return list(AgentGeneration.objects.order_by("number").values_list("number", flat=True))


def test_what_an_agent_held_before_is_forgotten_after_a_week() -> None:
    generations(30, 20, 8, 6, 0, applied=5)
    assert housekeeping(now=NOW) == 3
    assert left() == [4, 5]
    assert housekeeping(now=NOW) == 0


def test_what_an_agent_holds_and_what_it_is_yet_to_acknowledge_stays_however_old() -> None:
    """By these an agent that comes back after a year is still believed."""
    generations(400, 390, 380, 370, applied=2)
    housekeeping(now=NOW)
    assert left() == [2, 3, 4]


def test_join_tokens_go_three_months_after_they_ended() -> None:
    kept, revoked, expired, just = (make_join_token(name)[0] for name in ("kept", "revoked", "expired", "just"))
    ended = NOW - timedelta(days=91)
    JoinToken.objects.filter(pk=revoked.pk).update(revoked_at=ended)
    JoinToken.objects.filter(pk=expired.pk).update(expires_at=ended)
    JoinToken.objects.filter(pk=just.pk).update(expires_at=NOW - timedelta(days=89))
    assert housekeeping(now=NOW) == 2
    assert {one.pk for one in JoinToken.objects.all()} == {kept.pk, just.pk}


def test_it_goes_by_itself() -> None:
    generations(30, 0, applied=2)
    fleet_housekeeping()
    assert left() == [2]
    names = {one["task"] for one in settings.CELERY_BEAT_SCHEDULE.values()}
    app.loader.import_default_modules()
    assert fleet_housekeeping.name in names & {*app.tasks}
