"""Everything at once for a while: nobody waits in a circle, and what must hold holds afterwards."""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from tenants.actor import SYSTEM
from tenants.audit import audit_verify
from tenants.errors import TenantsError
from tenants.levels import FLEET, Place, namespaces_below
from tenants.models import AgentGroup, Namespace, NamespaceKey, Organisation, PolicyLevel
from tenants.policy import contradictions
from tenants.services.groups import group_delete
from tenants.services.keys import key_create
from tenants.services.members import member_invite, member_link, member_remove
from tenants.services.namespaces import namespace_delete, namespace_update
from tenants.services.operations import purge
from tenants.services.organisations import organisation_delete, organisation_update, remains_remove
from tenants.services.shares import group_holdings
from tenants.shares import heaviest_promise
from tests.database.factories import make_group, make_namespace, make_pin, publish
from tests.support.threads import at_once, failures
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS = 2.0
LEAST_DONE = 5  # by each thread, however slow the machine is
THREADS = 6
Deed = Callable[[], Any]
SHARES = (0.0, 0.05, 0.1, 0.4)


def fleet_deeds(dice: random.Random) -> list[Deed]:
    name = uuid4().hex
    return [
        lambda: publish(FLEET, ttl_seconds=dice.randint(1, 900), reserved_share=dice.choice([0.0, 0.02])),
        lambda: publish(FLEET, max_age_seconds=dice.choice([300, 900, None])),
        lambda: make_organisation(name[:20], "chat"),
        lambda: make_group(name),
        lambda: group_delete(actor=SYSTEM, group=dice.choice(AgentGroup.objects.exclude(slug="default"))),
        remains_remove,
    ]


def organisation_deeds(dice: random.Random, made: Organisation) -> list[Deed]:
    name = uuid4().hex
    invited = member_invite if dice.random() < 0.5 else _link_or_remove
    return [
        lambda: publish(Place(made), reserved_share=dice.choice(SHARES), ttl_seconds=dice.randint(1, 900)),
        lambda: publish(Place(made), models={"m": {"pin_share": dice.choice(SHARES)}}),
        lambda: make_namespace(made, name, group=dice.choice([None, *AgentGroup.objects.all()])),
        lambda: purge(actor=SYSTEM, organisation=made),
        lambda: key_create(actor=SYSTEM, organisation=made, name="x", scopes=["infer"]),
        lambda: invited(actor=SYSTEM, organisation=made, email=f"{name}@acme.example", role="viewer"),
        lambda: organisation_update(actor=SYSTEM, organisation=made, expected=None, name=name),
        lambda: organisation_delete(actor=SYSTEM, organisation=made, expected=None) if dice.random() < 0.2 else None,
    ]


def _link_or_remove(*, organisation: Organisation, **_: Any) -> None:
    for member in organisation.members.select_related("organisation")[:1]:
        member_link(actor=SYSTEM, member=member)
        member_remove(actor=SYSTEM, member=member)


def namespace_deeds(dice: random.Random, chosen: Namespace) -> list[Deed]:
    place = Place(chosen.organisation, chosen)
    return [
        lambda: publish(place, pin_share=dice.choice(SHARES), max_age_seconds=dice.choice([300, 900, None])),
        lambda: publish(place, models={"m": {"reserved_share": dice.choice(SHARES)}}),
        lambda: namespace_update(
            actor=SYSTEM, namespace=chosen, expected=None, group=dice.choice(AgentGroup.objects.all())
        ),
        lambda: namespace_delete(actor=SYSTEM, namespace=chosen, expected=None) if dice.random() < 0.2 else None,
        lambda: purge(actor=SYSTEM, organisation=chosen.organisation, namespace=chosen, include_pins=True),
        lambda: make_pin(chosen, uuid4().hex),
    ]


def any_deed(dice: random.Random) -> Deed:
    """Of what there was a moment ago: somebody else may just be deleting it."""
    made, chosen = Organisation.objects.order_by("?").first(), Namespace.objects.order_by("?").first()
    choices = [fleet_deeds(dice)]
    if made is not None and chosen is not None:
        chosen.organisation  # noqa: B018  # looked up now, not when the deed has begun
        choices += [organisation_deeds(dice, made), namespace_deeds(dice, chosen)] * 2
    return dice.choice(dice.choice(choices))


def storm(seed: int) -> dict[str, int]:
    """How often each outcome was met. Refusals of the domain are fine, whatever else is raised is not."""
    dice, until = random.Random(seed), time.monotonic() + SECONDS
    outcomes: dict[str, int] = {}
    while time.monotonic() < until or outcomes.get("done", 0) < LEAST_DONE:
        outcome = "done"
        try:
            any_deed(dice)()
        except TenantsError as error:
            outcome = type(error).__name__
        except (IndexError, Organisation.DoesNotExist):  # there was none to choose
            outcome = "none"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def chains() -> Iterator[tuple[dict[str, Any], ...]]:
    fleet = PolicyLevel.objects.get(kind="fleet").policy
    for below in namespaces_below(FLEET):
        yield fleet, dict(below.organisation_policy), dict(below.namespace_policy)


def test_a_storm_of_writes_ends_in_no_deadlock_and_breaks_no_rule() -> None:
    for name in ("acme", "globex", "initech"):
        make_organisation(name, "chat")
    make_group()
    outcomes = at_once(*[lambda seed=seed: storm(seed) for seed in range(THREADS)])
    assert [one for one in outcomes if isinstance(one, Exception)] == []
    assert min(one["done"] for one in outcomes) >= LEAST_DONE
    assert audit_verify().problem is None
    promises = {group.slug: heaviest_promise(group_holdings(group.pk)) for group in AgentGroup.objects.all()}
    assert [slug for slug, promise in promises.items() if promise.is_too_much] == []
    assert [found for chain in chains() for found in contradictions(chain)] == []
    for level in PolicyLevel.objects.all():
        numbers = list(level.revisions.order_by("number").values_list("number", flat=True))
        assert numbers == list(range(1, level.revision + 1))
        assert level.revision == 0 or level.policy == level.revisions.latest("number").policy
    living = NamespaceKey.objects.filter(sealed__isnull=False)
    assert not living.exclude(namespace__deleted_at=None, namespace__organisation__deleted_at=None).exists()


def test_namespaces_of_many_organisations_that_inherit_a_share_are_made_at_once() -> None:
    publish(FLEET, reserved_share=0.01)
    made = [make_organisation(f"o{n}") for n in range(6)]
    outcomes = at_once(*[lambda one=one: [make_namespace(one, f"n{n}") for n in range(4)] for one in made])
    assert failures(outcomes) == []
    assert Namespace.objects.count() == 30


def test_the_first_of_all_deeds_may_be_many_at_once() -> None:
    """Neither the fleet's level, nor the default group, nor the head of the trail is there yet."""
    outcomes = at_once(*[lambda n=n: make_organisation(f"o{n}", "chat") for n in range(5)])
    assert failures(outcomes) == []
    assert (PolicyLevel.objects.filter(kind="fleet").count(), AgentGroup.objects.count()) == (1, 1)
    assert audit_verify().is_sound
