"""While a canary is under way, titles and states say on how many engines the new policy is."""

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.fleet.models import OperationStep
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.services import policy_publish
from controlplane.rollouts.spec import RolloutSpec
from tenants.actor import SYSTEM
from tenants.levels import FLEET, Place
from tenants.models import Member, Organisation
from tenants.policy import Policy
from tests.database.factories import make_agent, make_user, publish
from tests.web.api import make_organisation
from tests.web.pages import words

pytestmark = pytest.mark.django_db
NAMESPACE = "/orgs/acme/namespaces/chat"


@pytest.fixture
def acme() -> Organisation:
    organisation = make_organisation("acme", "chat")
    for number in range(1, 4):
        make_agent(f"agent-{number}")
    make_agent("gateway-1", kind="gateway")
    return organisation


def canary(place: Place) -> Rollout:
    publish(place, ttl_seconds=300)
    spec = RolloutSpec(strategy="canary", steps=[30, 100], bake_seconds=60)
    policy = Policy.model_validate({"ttl_seconds": 600})
    found = policy_publish(actor=SYSTEM, place=place, policy=policy, expected=None, rollout=spec).rollout
    assert found is not None
    return found


def acknowledge(rollout: Rollout) -> None:
    steps = OperationStep.objects.filter(operation=rollout.operation_id, agent__in=rollout.reached)
    steps.update(state=OperationStep.State.DONE, done_at=timezone.now(), receipt={"blocks": 0, "bytes": 0})


def page(client: Client, path: str) -> str:
    return words(client.get(path))


def test_editor_says_how_far_a_canary_is(operator_client: Client, acme: Organisation) -> None:
    rollout = canary(Place(acme, acme.namespaces.get(slug="chat")))
    said = page(operator_client, f"{NAMESPACE}/policy")
    assert "chat keeps blocks for 10 min after their last use, as fp8, on 1 of 3 engines so far" in said
    assert "acknowledged revision 2, step 1 of 2; the other engines keep revision 1" in said
    assert "in sync" not in said
    acknowledge(rollout)
    assert f"{len(rollout.reached)} of 4 agents acknowledged revision 2" in page(operator_client, f"{NAMESPACE}/policy")
    Rollout.objects.filter(pk=rollout.pk).update(state=Rollout.State.PAUSED)
    assert "step 1 of 2, paused; the other engines keep" in page(operator_client, f"{NAMESPACE}/policy")


def test_finished_rollout_leaves_plain_titles(operator_client: Client, acme: Organisation) -> None:
    rollout = canary(Place(acme, acme.namespaces.get(slug="chat")))
    Rollout.objects.filter(pk=rollout.pk).update(state=Rollout.State.DONE, finished_at=timezone.now())
    said = page(operator_client, f"{NAMESPACE}/policy")
    assert "so far" not in said
    assert "in sync" in said


@pytest.mark.parametrize("level", ["fleet", "organisation"])
def test_namespace_inherits_the_progress_of_levels_above(
    operator_client: Client, acme: Organisation, level: str
) -> None:
    canary(FLEET if level == "fleet" else Place(acme))
    said = page(operator_client, NAMESPACE)
    assert "Blocks live 10 min after last use" in said
    assert "of each pool, on 1 of 3 engines so far." in said
    assert "the other engines keep revision 1" in said


def test_members_see_progress_of_their_namespaces_only(client: Client, acme: Organisation) -> None:
    globex = make_organisation("globex", "agents")
    canary(Place(acme, acme.namespaces.get(slug="chat")))
    for organisation, expected in ((acme, 1), (globex, 0)):
        user = make_user(email=f"kim@{organisation.slug}.example")
        Member.objects.create(
            organisation=organisation, email=user.email, role="editor", user=user, joined_at=timezone.now()
        )
        client.force_login(user)
        assert page(client, "/").count("in force on 1 of 3 engines so far") == expected


def test_fleet_headline_names_the_open_rollout(operator_client: Client, acme: Organisation) -> None:
    canary(Place(acme, acme.namespaces.get(slug="chat")))
    assert "acme/chat, revision 2 is on 0 of 4 agents" in page(operator_client, "/fleet")
    canary(Place(acme))
    assert "; 2 rollouts are in progress" in page(operator_client, "/fleet")
