"""What a revision was to bring is stored when it is published, stays, and stands beside what was measured after."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.analytics.models import PredictedEffect, ReuseCurve
from controlplane.analytics.predicting import EVERYBODY, Effect, effects_measure, effects_of, effects_predict
from controlplane.analytics.retention import retain
from controlplane.analytics.tasks import predict
from tenants.actor import SYSTEM
from tenants.levels import FLEET, Place
from tenants.models import Namespace, Organisation, PolicyRevision
from tenants.policy import Policy
from tenants.services.policies import policy_publish
from tests.usage.rows import Counted, counts, store
from tests.web.api import make_organisation
from tests.web.pages import join, words

pytestmark = pytest.mark.django_db
LINES = {"sliding": [0.2, 0.5, 0.7], "better": [0.3, 0.6, 0.9]}


@pytest.fixture
def acme(db: None) -> Organisation:
    return make_organisation("acme", "chat")


def space(organisation: Organisation, slug: str = "default") -> Namespace:
    return Namespace.objects.select_related("organisation").get(organisation=organisation, slug=slug)


def curve(namespace: Namespace, ratios: str = "sliding", prompt_tokens: int = 50_000) -> None:
    lines = [{"ttl_mode": "sliding", "limit_share": None, "hit_ratios": LINES[ratios], "resident_bytes": [1, 2, 3]}]
    told = {"prompt_tokens": prompt_tokens, "ttls": [60, 300, 600], "curves": lines}
    ReuseCurve.objects.update_or_create(
        agent="agent-1", namespace_id=namespace.pk, defaults={"told": told, "at": timezone.now()}
    )


def publish(place: Place, **said: Any) -> PolicyRevision:
    published = policy_publish(actor=SYSTEM, place=place, policy=Policy.model_validate(said), expected=None)
    return PolicyRevision.objects.get(level=published.level, number=published.level.revision)


def foretold(revision: PolicyRevision, organisation: int = EVERYBODY) -> tuple[float, float] | None:
    found = effects_of([revision.pk], organisation)[revision.pk].foretold
    return None if found is None else (round(found.before, 3), round(found.after, 3))


def test_what_was_foretold_stays_whatever_engines_tell_later(customer_client: Client, acme: Organisation) -> None:
    join(acme)
    curve(space(acme))
    publish(Place(acme), ttl_seconds=600)
    assert "50.0 % → 70.0 % ± 1.0 points" in words(customer_client.get("/"))
    predict()
    curve(space(acme), "better")
    for page in ("/", "/orgs/acme/policy/revisions"):
        assert "50.0 % → 70.0 % ± 1.0 points" in words(customer_client.get(page))


def test_a_revision_of_the_fleet_is_foretold_for_each_organisation_and_for_everybody(acme: Organisation) -> None:
    globex = make_organisation("globex")
    curve(space(acme), prompt_tokens=30_000)
    curve(space(globex), "better", prompt_tokens=10_000)
    publish(Place(acme, space(acme)), ttl_seconds=300)  # its own holds, whatever the fleet says
    curve(space(acme, "chat"), prompt_tokens=30_000)
    revision = publish(FLEET, ttl_seconds=600)
    assert effects_predict(timezone.now()) == 2
    assert foretold(revision, acme.pk) == (0.5, 0.7)
    assert foretold(revision, globex.pk) == (0.6, 0.9)
    assert foretold(revision) == (0.525, 0.75)


def test_each_of_several_revisions_is_foretold_against_the_one_before(acme: Organisation) -> None:
    curve(space(acme))
    first = publish(Place(acme), ttl_seconds=600)
    second = publish(Place(acme), ttl_seconds=60)
    effects_predict(timezone.now())
    assert (foretold(first), foretold(second)) == ((0.5, 0.7), (0.7, 0.2))


def test_of_too_little_traffic_it_stays_said_that_nothing_was_foretold(
    customer_client: Client, acme: Organisation
) -> None:
    join(acme)
    curve(space(acme), prompt_tokens=9_999)
    revision = publish(Place(acme), ttl_seconds=600)
    predict()
    curve(space(acme))
    assert effects_of([revision.pk], acme.pk) == {revision.pk: Effect(None, None, None)}
    page = words(customer_client.get("/"))
    assert "too little asked to say" in page
    assert "50.0 % →" not in page


def test_what_was_published_while_no_worker_ran_is_not_lost_and_what_is_old_is_not_invented(
    acme: Organisation,
) -> None:
    curve(space(acme))
    recent = publish(Place(acme), ttl_seconds=600)
    now = timezone.now()
    assert effects_predict(now + timedelta(hours=26)) == 0
    assert effects_predict(now + timedelta(hours=3)) == 1
    assert foretold(recent) == (0.5, 0.7)
    assert effects_predict(now + timedelta(hours=3)) == 0


def test_what_was_measured_before_and_after_stands_beside_it(operator_client: Client, acme: Organisation) -> None:
    now, default = timezone.now(), space(acme)
    curve(default)
    revision = publish(Place(acme, default), ttl_seconds=600)
    predict()
    store(Counted(default, now - timedelta(hours=2), counts(10, 1_000, 400)))
    store(Counted(space(acme, "chat"), now - timedelta(hours=2), counts(10, 9_000, 0)))  # not its namespace
    assert effects_of([revision.pk])[revision.pk].measured_after is None
    later = now + timedelta(minutes=30)
    store(Counted(default, now + timedelta(minutes=10), counts(10, 1_000, 650)))
    effects_measure(later)
    found = effects_of([revision.pk], acme.pk)[revision.pk]
    assert (found.measured_before, found.measured_after) == (0.4, 0.65)
    page = operator_client.get("/orgs/acme/namespaces/default/revisions")
    assert "Predicted hit rate 50.0 % → 70.0 % ± 1.0 points; measured 40.0 % → 65.0 %" in words(page)
    page = operator_client.get("/orgs/acme/analytics")
    assert re.search(r"50.0 % → 70.0 % ± 1.0 points measured 40.0 % → 65.0 %", words(page))


def test_measuring_goes_on_for_a_day_and_then_stays(acme: Organisation) -> None:
    now = timezone.now()
    curve(space(acme))
    publish(Place(acme), ttl_seconds=600)
    effects_predict(now)
    both = 2  # the organisation's own, and everybody's
    assert effects_measure(now) == both
    assert effects_measure(now + timedelta(minutes=1)) == 0
    assert effects_measure(now + timedelta(hours=1)) == both
    assert effects_measure(now + timedelta(hours=25)) == both
    assert effects_measure(now + timedelta(hours=49)) == 0


def test_a_change_of_what_nobody_foretells_costs_one_row(acme: Organisation) -> None:
    curve(space(acme))
    publish(Place(acme), weight=2.0)
    effects_predict(timezone.now())
    assert [one.before for one in PredictedEffect.objects.all()] == [None]


def test_what_is_left_of_revisions_that_are_gone_goes_too(acme: Organisation) -> None:
    curve(space(acme))
    publish(Place(acme), ttl_seconds=600)
    effects_predict(timezone.now())
    PredictedEffect.objects.filter(organisation_id=EVERYBODY).update(revision_id=10**9)
    retain(timezone.now())
    assert set(PredictedEffect.objects.values_list("organisation_id", flat=True)) == {acme.pk}
