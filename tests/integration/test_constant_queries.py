"""How many there are changes how long an answer is, never how many questions the database is asked for it."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from controlplane.api.routing import OPERATIONS
from controlplane.fleet.in_force import fields_in_force
from controlplane.fleet.quality_results import quality_override
from controlplane.rollouts.services import policy_publish
from tenants.actor import SYSTEM
from tenants.levels import FLEET, Place
from tenants.models import Namespace, Organisation, User
from tenants.policy import Policy
from tenants.services.groups import group_create
from tenants.services.keys import key_create, operator_token_create
from tenants.services.members import member_invite
from tenants.services.namespaces import namespaces_create
from tenants.services.organisations import organisation_create
from tenants.services.pins import pin_create
from tests.database.factories import make_agent, make_join_token
from tests.fleet.alerts import make_alert, make_alert_rule
from tests.web.api import Api, make_organisation

FEW, MANY, PAGE = 3, 60, 20
LISTS = {
    "agents_list": "/fleet/agents",
    "alert_rules_list": "/alert-rules",
    "alerts_list": "/alerts",
    "audit_list": "/audit",
    "fleet_policy_revisions": "/policy/revisions",
    "groups_list": "/agent-groups",
    "join_tokens_list": "/fleet/join-tokens",
    "keys_list": "/orgs/acme/keys",
    "members_list": "/orgs/acme/members",
    "models_list": "/models",
    "namespace_policy_revisions": "/orgs/acme/namespaces/default/policy/revisions",
    "namespaces_list": "/orgs/acme/namespaces",
    "operator_tokens_list": "/operator-tokens",
    "organisation_policy_revisions": "/orgs/acme/policy/revisions",
    "organisations_list": "/orgs",
    "pins_list": "/orgs/acme/namespaces/default/pins",
    "quality_list": "/quality",
    "rollouts_list": "/rollouts",
}
OF_THE_PRODUCT = {"models_list"}  # nobody can add to these
LEVELS = {"fleet": "/policy", "organisation": "/orgs/acme/policy", "namespace": "/orgs/acme/namespaces/default/policy"}
PURGED = ("/orgs/acme", "/orgs/acme/namespaces/default")
# Shares, so that everybody's promises are added up, and a model, so that there is more than one policy in force.
DRAFT = {"policy": {"ttl_seconds": 77, "reserved_share": 0.001, "models": {"m": {"reserved_share": 0.002}}}}


@pytest.fixture
def acme(db: None) -> Organisation:
    return make_organisation("acme")


def grow(acme: Organisation, numbers: range) -> None:
    """One more of everything for each number."""
    slugs = [f"x{number:03}" for number in numbers]
    made = namespaces_create(actor=SYSTEM, organisation=acme, wanted=[(slug, "", None) for slug in slugs])
    default = Namespace.objects.select_related("organisation").get(organisation=acme, slug="default")
    user = User.objects.get(is_operator=True)
    for number, slug, namespace in zip(numbers, slugs, made, strict=True):
        organisation_create(actor=SYSTEM, slug=slug, name=slug)
        group_create(actor=SYSTEM, slug=slug, name=slug)
        member_invite(actor=SYSTEM, organisation=acme, email=f"{slug}@acme.example", role="viewer")
        key_create(actor=SYSTEM, organisation=acme, name=slug, scopes=["infer"], namespaces=[default, namespace])
        operator_token_create(actor=SYSTEM, user=user, name=slug, scopes=["admin"])
        make_agent(slug)
        make_join_token(slug)
        make_alert(make_alert_rule(Place(acme, namespace)))
        pin_create(actor=SYSTEM, namespace=default, name=slug, model="m", content_kind="prompt", content="x")
        quality_override(
            actor=SYSTEM, model=slug, revision="r1", backend="simulated", kv_dtype="int8", note="Judged elsewhere"
        )
        for place in (FLEET, Place(acme), Place(acme, default), Place(acme, namespace)):
            policy_publish(actor=SYSTEM, place=place, policy=Policy(ttl_seconds=60 + number), expected=None)


def counted(ask: Callable[[], Any]) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert ask().status_code < 300
    return len(queries)


def got(operator: Api, path: str) -> Any:
    return json.loads(operator.get(path).content)


def page_counts(operator: Api, limit: int) -> Mapping[str, int]:
    operator.get("/whoami")  # so that the token's last use is noted already
    fields_in_force()  # so that they are read already: they are kept until something is changed
    return {name: counted(partial(operator.get, f"{path}?limit={limit}")) for name, path in LISTS.items()}


def test_every_list_is_counted_here() -> None:
    lists = {one.name for one in OPERATIONS if one.method == "GET" and one.name.endswith(("_list", "_revisions"))}
    assert lists == set(LISTS)


def test_a_page_costs_the_same_however_long_and_of_whatever(
    operator: Api, acme: Organisation, subtests: pytest.Subtests
) -> None:
    grow(acme, range(FEW))
    few = page_counts(operator, limit=200)
    grow(acme, range(FEW, MANY))
    for limit in (1, FEW, 50, 200):
        with subtests.test(limit=limit):
            assert page_counts(operator, limit) == few
    for name, path in LISTS.items():
        with subtests.test(msg=name):
            if name not in OF_THE_PRODUCT:
                assert len(got(operator, f"{path}?limit=200")["items"]) >= MANY
            assert set(later_page_counts(operator, path)) <= {few[name]}


def later_page_counts(operator: Api, path: str) -> Iterator[int]:
    """Return the number of questions of every page of a list but its first."""
    found = got(operator, f"{path}?limit={PAGE}")
    while found["next_cursor"]:
        at = f"{path}?limit={PAGE}&cursor={found['next_cursor']}"
        yield counted(partial(operator.get, at))
        found = got(operator, at)


Ask = Callable[[str], Any]


def deeds_of(operator: Api) -> Mapping[str, tuple[Ask, Iterable[str]]]:
    """Return how each is asked for below a path, and below which paths."""
    levels = LEVELS.values()
    return {
        "read": (operator.get, levels),
        "effective": (lambda path: operator.get(f"{path}/effective"), levels),
        "effective of a model": (lambda path: operator.get(f"{path}/effective?model=m"), levels),
        "preview": (lambda path: operator.post(f"{path}/preview", DRAFT), levels),
        "publish": (lambda path: operator.put(path, DRAFT, If_Match="*"), levels),
        "roll back": (lambda path: operator.post(f"{path}/rollback", {"revision": 1}, If_Match="*"), levels),
        "purge": (lambda path: operator.post(f"{path}/purge", {"include_pins": True}), PURGED),
    }


def deed_counts(ask: Ask, paths: Iterable[str]) -> Mapping[str, int]:
    """Return the number of questions at each path, leaving no other trace: each deed meets the same world."""
    with transaction.atomic():
        counts = {path: counted(partial(ask, path)) for path in paths}
        transaction.set_rollback(True)
    return counts


def test_deeds_cost_the_same_whoever_is_concerned(operator: Api, acme: Organisation, subtests: pytest.Subtests) -> None:
    deeds = deeds_of(operator)
    operator.get("/whoami")
    grow(acme, range(FEW))
    few = {name: deed_counts(*deed) for name, deed in deeds.items()}
    grow(acme, range(FEW, 20))
    for name, deed in deeds.items():
        with subtests.test(msg=name):
            assert deed_counts(*deed) == few[name]
