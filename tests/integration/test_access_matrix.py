"""Every operation as every kind of caller. An operation that is not in the table below fails the build."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import get_resolver
from django.utils import timezone

from controlplane.api.api import GROUPS
from controlplane.api.routing import OPERATIONS, Group
from tenants import access
from tenants.actor import SYSTEM
from tenants.errors import NotFound, NotPermitted
from tenants.levels import Place
from tenants.models import ApiKey, Namespace, Organisation, User
from tenants.services.keys import operator_token_create
from tenants.services.members import member_invite
from tenants.services.operations import purge
from tenants.services.organisations import organisation_delete, organisation_update
from tenants.services.pins import pin_create
from tests.database.factories import actor_of, make_agent, make_join_token, make_operator
from tests.database.undoing import undone
from tests.fleet.alerts import make_alert, make_alert_rule
from tests.fleet.rollouts import make_canary, shipped_quality
from tests.web.api import REST_SCOPES, Api, make_key, make_operator_token, make_organisation

assert GROUPS  # importing them declares the operations

# Which kind of rule each operation has. Written by hand: this is the promise, the routes are what is measured by it.
TABLE: dict[tuple[str, str], str] = {
    ("GET", "/whoami"): "anyone",
    ("GET", "/orgs"): "read fleet",
    ("POST", "/orgs"): "operate",
    ("GET", "/orgs/{org}"): "read",
    ("PATCH", "/orgs/{org}"): "manage",
    ("DELETE", "/orgs/{org}"): "operate org",
    ("POST", "/orgs/{org}/purge"): "manage",
    ("GET", "/orgs/{org}/bounds"): "read",
    ("PUT", "/orgs/{org}/bounds"): "operate org",
    ("GET", "/orgs/{org}/limits"): "read",
    ("PUT", "/orgs/{org}/limits"): "operate org",
    ("GET", "/orgs/{org}/members"): "manage read",
    ("POST", "/orgs/{org}/members"): "manage",
    ("GET", "/orgs/{org}/members/{member_id}"): "manage read",
    ("PATCH", "/orgs/{org}/members/{member_id}"): "manage",
    ("DELETE", "/orgs/{org}/members/{member_id}"): "manage",
    ("POST", "/orgs/{org}/members/{member_id}/link"): "manage",
    ("GET", "/orgs/{org}/keys"): "manage read",
    ("POST", "/orgs/{org}/keys"): "manage",
    ("DELETE", "/orgs/{org}/keys/{key_id}"): "manage",
    ("GET", "/orgs/{org}/namespaces"): "read",
    ("POST", "/orgs/{org}/namespaces"): "manage",
    ("GET", "/orgs/{org}/namespaces/{ns}"): "read",
    ("PATCH", "/orgs/{org}/namespaces/{ns}"): "manage",
    ("DELETE", "/orgs/{org}/namespaces/{ns}"): "manage",
    ("POST", "/orgs/{org}/namespaces/{ns}/purge"): "publish",
    ("GET", "/orgs/{org}/namespaces/{ns}/pins"): "read",
    ("POST", "/orgs/{org}/namespaces/{ns}/pins"): "publish",
    ("DELETE", "/orgs/{org}/namespaces/{ns}/pins/{pin_id}"): "publish",
    ("GET", "/policy"): "operate read",
    ("PUT", "/policy"): "operate publish",
    ("POST", "/policy/preview"): "operate read",
    ("GET", "/policy/effective"): "operate read",
    ("GET", "/policy/revisions"): "operate read",
    ("GET", "/policy/revisions/{number}"): "operate read",
    ("POST", "/policy/rollback"): "operate publish",
    ("GET", "/orgs/{org}/policy"): "read whole",
    ("PUT", "/orgs/{org}/policy"): "publish whole",
    ("POST", "/orgs/{org}/policy/preview"): "read whole",
    ("GET", "/orgs/{org}/policy/effective"): "read whole",
    ("GET", "/orgs/{org}/policy/revisions"): "read whole",
    ("GET", "/orgs/{org}/policy/revisions/{number}"): "read whole",
    ("POST", "/orgs/{org}/policy/rollback"): "publish whole",
    ("GET", "/orgs/{org}/namespaces/{ns}/policy"): "read",
    ("PUT", "/orgs/{org}/namespaces/{ns}/policy"): "publish",
    ("POST", "/orgs/{org}/namespaces/{ns}/policy/preview"): "read",
    ("GET", "/orgs/{org}/namespaces/{ns}/policy/effective"): "read",
    ("GET", "/orgs/{org}/namespaces/{ns}/policy/revisions"): "read",
    ("GET", "/orgs/{org}/namespaces/{ns}/policy/revisions/{number}"): "read",
    ("POST", "/orgs/{org}/namespaces/{ns}/policy/rollback"): "publish",
    ("GET", "/operations/{operation_id}"): "read item",
    ("GET", "/audit"): "manage read fleet",
    ("GET", "/agent-groups"): "operate read",
    ("POST", "/agent-groups"): "operate",
    ("DELETE", "/agent-groups/{slug}"): "operate",
    ("GET", "/fleet/agents"): "operate read",
    ("GET", "/fleet/agents/{agent_id}"): "operate read",
    ("PATCH", "/fleet/agents/{agent_id}"): "operate",
    ("DELETE", "/fleet/agents/{agent_id}"): "operate",
    ("POST", "/fleet/agents/{agent_id}/drain"): "operate",
    ("POST", "/fleet/agents/{agent_id}/resume"): "operate",
    ("POST", "/fleet/agents/{agent_id}/integrity"): "operate",
    ("POST", "/fleet/agents/{agent_id}/rotate-token"): "operate",
    ("GET", "/fleet/join-tokens"): "operate admin read",
    ("POST", "/fleet/join-tokens"): "operate",
    ("GET", "/fleet/join-tokens/{join_token_id}"): "operate admin read",
    ("DELETE", "/fleet/join-tokens/{join_token_id}"): "operate",
    ("GET", "/rollouts"): "read fleet",
    ("GET", "/rollouts/{rollout_id}"): "read item",
    ("POST", "/rollouts/{rollout_id}/pause"): "publish item",
    ("POST", "/rollouts/{rollout_id}/resume"): "publish item",
    ("POST", "/rollouts/{rollout_id}/abort"): "publish item",
    ("POST", "/rollouts/{rollout_id}/promote"): "publish item",
    ("GET", "/quality"): "read fleet",
    ("POST", "/quality"): "operate",
    ("POST", "/quality/override"): "operate",
    ("GET", "/prices"): "stats fleet",
    ("PUT", "/prices"): "operate",
    ("GET", "/orgs/{org}/invoice"): "stats whole",
    ("GET", "/orgs/{org}/stats"): "stats",
    ("GET", "/orgs/{org}/stats/series"): "stats",
    ("GET", "/orgs/{org}/namespaces/{ns}/what-if"): "stats",
    ("GET", "/orgs/{org}/namespaces/{ns}/diagnostics"): "stats",
    ("GET", "/orgs/{org}/namespaces/{ns}/evictions"): "stats",
    ("POST", "/lint/prompt"): "anyone",
    ("GET", "/fleet/reconciliation"): "operate read",
    ("GET", "/demo-traffic"): "operate read",
    ("PUT", "/demo-traffic"): "operate",
    ("GET", "/fleet/evictions"): "operate stats",
    ("GET", "/fleet/stats"): "operate stats",
    ("GET", "/fleet/stats/series"): "operate stats",
    ("GET", "/alerts"): "stats fleet",
    ("POST", "/alerts/{alert_id}/acknowledge"): "publish item",
    ("POST", "/alerts/{alert_id}/silence"): "publish item",
    ("GET", "/alert-rules"): "read fleet",
    ("POST", "/alert-rules"): "manage fleet",
    ("PATCH", "/alert-rules/{rule_id}"): "manage",
    ("DELETE", "/alert-rules/{rule_id}"): "manage",
    ("GET", "/operator-tokens"): "operate admin read",
    ("POST", "/operator-tokens"): "operate",
    ("DELETE", "/operator-tokens/{token_id}"): "operate",
    ("GET", "/config"): "plan",
    ("GET", "/config/schema"): "anyone",
    ("POST", "/config/plan"): "plan",
    ("POST", "/config/apply"): "apply",
    ("GET", "/models"): "anyone",
    ("POST", "/calculator/kv"): "anyone",
}

YES, WHO, NO, HIDDEN = "answered", 401, 403, 404
STRANGERS = ("nobody", "garbage", "revoked", "expired", "of a deleted organisation", "of a former operator")
ALWAYS: dict[str, Any] = dict.fromkeys(STRANGERS, WHO)


def _row(yes: str, hidden: str = "", /) -> dict[str, Any]:
    """These callers are answered, those see nothing there, all others are known and refused."""
    answered, unseen = set(yes.split()), set(hidden.split())
    return ALWAYS | {name: YES if name in answered else HIDDEN if name in unseen else NO for name in CALLERS}


CALLERS = (
    *("operator", "op-publish", "op-read", "op-stats"),
    *("admin", "publish", "read", "stats", "infer", "bound", "unbound-here"),
    *("suspended", "other"),
)
READERS = "operator op-publish op-read admin publish read bound suspended"
OUTCOMES: dict[str, dict[str, Any]] = {
    "anyone": _row(" ".join(CALLERS)),
    "read fleet": _row(f"{READERS} unbound-here other"),
    "read": _row(READERS, "other unbound-here"),
    "read whole": _row("operator op-publish op-read admin publish read suspended", "other"),
    "stats fleet": _row("operator op-stats admin stats suspended other"),
    "stats": _row("operator op-stats admin stats suspended", "other"),
    "operate stats": _row("operator op-stats"),
    "stats whole": _row("operator op-stats admin stats suspended", "other"),
    "read item": _row(READERS, "other unbound-here infer stats op-stats") | {"infer": NO, "stats": NO, "op-stats": NO},
    "manage read": _row("operator admin suspended", "other"),
    "manage read fleet": _row("operator admin suspended other"),
    "manage": _row("operator admin", "other"),
    "manage fleet": _row("operator admin other"),
    "publish": _row("operator op-publish admin publish bound", "other unbound-here"),
    "publish item": _row("operator op-publish admin publish bound", "other unbound-here"),
    "publish whole": _row("operator op-publish admin publish", "other"),
    "plan": _row("operator op-publish op-read admin publish read suspended other"),
    "apply": _row("operator op-publish admin publish other"),
    "operate": _row("operator"),
    "operate org": _row("operator", "other"),
    "operate read": _row("operator op-publish op-read"),
    "operate publish": _row("operator op-publish"),
    "operate admin read": _row("operator"),
}
POLICY = {"policy": {"ttl_seconds": 60}}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/orgs"): {"slug": "initech", "name": "Initech"},
    ("PATCH", "/orgs/{org}"): {"name": "Acme again"},
    ("PUT", "/orgs/{org}/bounds"): {"bounds": {}},
    ("PUT", "/orgs/{org}/limits"): {"limits": {}},
    ("POST", "/orgs/{org}/members"): {"email": "new@acme.example", "role": "viewer"},
    ("PATCH", "/orgs/{org}/members/{member_id}"): {"role": "viewer"},
    ("POST", "/orgs/{org}/keys"): {"name": "new", "scopes": ["infer"]},
    ("POST", "/orgs/{org}/namespaces"): {"slug": "new"},
    ("PATCH", "/orgs/{org}/namespaces/{ns}"): {"name": "Chat again"},
    ("POST", "/orgs/{org}/namespaces/{ns}/pins"): {"name": "new", "model": "m", "prompt": "Hello"},
    ("POST", "/agent-groups"): {"slug": "new", "name": "New"},
    ("PATCH", "/fleet/agents/{agent_id}"): {"labels": {"tier": "canary"}},
    ("POST", "/fleet/join-tokens"): {"name": "new"},
    ("POST", "/quality"): {"model": "luminet-demo", "artefact": shipped_quality()},
    ("POST", "/quality/override"): {
        "model": "m",
        "revision": "r1",
        "backend": "simulated",
        "kv_dtype": "int8",
        "note": "Judged elsewhere",
    },
    ("PUT", "/demo-traffic"): {"is_on": False},
    ("PUT", "/prices"): {"currency": "EUR", "prices": []},
    ("POST", "/alerts/{alert_id}/silence"): {"seconds": 3600},
    ("POST", "/alert-rules"): {"name": "new", "metric": "hit_ratio", "comparison": "below", "threshold": 0.5},
    ("PATCH", "/alert-rules/{rule_id}"): {"threshold": 0.4},
    ("POST", "/config/plan"): {"document": {"version": 1}},
    ("POST", "/config/apply"): {"document": {"version": 1}},
    ("POST", "/calculator/kv"): {"model": "llama-3-8b"},
    ("POST", "/lint/prompt"): {"prompts": ["Hello", "Hello there"]},
    ("POST", "/operator-tokens"): {"name": "new", "scopes": ["policy:read"]},
}


@dataclass(frozen=True, slots=True)
class World:
    """One of everything, and a token of every kind of caller."""

    tokens: dict[str, str | None]
    ids: dict[str, str]
    seen: dict[str, int]

    def ask(self, caller: str, method: str, path: str, **named: str) -> HttpResponse:
        api = Api(self.tokens[caller], Client())
        filled = path.format(**{**self.ids, **named})
        return api.ask(method, filled, body_for(method, path), If_Match=f'"{self.seen.get(path, 0)}"')


def body_for(method: str, path: str) -> Any:
    if (method, path) in BODIES:
        return BODIES[method, path]
    if path.endswith("/policy/rollback"):
        return {"revision": 0}
    if "/policy" in path and method in ("PUT", "POST"):
        return POLICY
    return {} if method == "POST" else None


@pytest.fixture
def world(db: None) -> World:
    acme, suspended, deleted = (make_organisation(slug, "chat") for slug in ("acme", "stopped", "gone"))
    chat, default = (acme.namespaces.get(slug=slug) for slug in ("chat", "default"))
    operator = make_operator()
    member, _ = member_invite(actor=SYSTEM, organisation=acme, email="kim@acme.example", role="viewer")
    pin = pin_create(actor=SYSTEM, namespace=chat, name="p", model="m", content_kind="prompt", content="x")
    token, _ = operator_token_create(actor=SYSTEM, user=operator, name="spare", scopes=["policy:read"])
    spare = make_key(acme, "infer")
    tokens: dict[str, str | None] = {
        **strangers(acme, deleted),
        **operators(operator),
        **keys(acme, chat, default),
        "suspended": make_key(suspended),
        "other": make_key(make_organisation("globex")),
    }
    organisation_update(actor=SYSTEM, organisation=suspended, expected=None, state="suspended")
    organisation_delete(actor=SYSTEM, organisation=deleted, expected=None)
    ids = {
        "org": "acme",
        "ns": "chat",
        "member_id": str(member.pk),
        "key_id": str(ApiKey.objects.get(prefix=spare[:12]).pk),
        "pin_id": str(pin.pk),
        "operation_id": str(purge(actor=SYSTEM, organisation=acme, namespace=chat).pk),
        "token_id": str(token.pk),
        "slug": "spare",
        "number": "1",
        "agent_id": make_agent("agent-1").pk,
        "join_token_id": str(make_join_token()[0].pk),
    }
    Api(tokens["operator"], Client()).post("/agent-groups", {"slug": "spare", "name": "Spare"})
    seen: dict[str, int] = {}
    for path in ("/policy", "/orgs/{org}/policy", "/orgs/{org}/namespaces/{ns}/policy"):
        Api(tokens["operator"], Client()).put(path.format(**ids), POLICY, seen=0)
        seen |= {path: 1, f"{path}/rollback": 1}
    their_own = make_canary(Place(acme, chat), "agent-1", "agent-2", actor=actor_of(tokens["admin"] or ""))
    ids["rollout_id"] = str(their_own.pk)
    of_the_namespace = "/orgs/{org}/namespaces/{ns}/policy"
    seen |= {of_the_namespace: 2, f"{of_the_namespace}/rollback": 2}
    rule = make_alert_rule(Place(acme, chat), actor=actor_of(tokens["admin"] or ""))
    ids |= {"alert_id": str(make_alert(rule).public_id), "rule_id": str(rule.public_id)}
    return World(tokens, ids, seen | {"/orgs/{org}": 1, "/orgs/{org}/namespaces/{ns}": 1})


def strangers(acme: Organisation, deleted: Organisation) -> dict[str, str | None]:
    now = timezone.now()
    tokens: dict[str, str | None] = {"nobody": None, "garbage": "lmk_" + "x" * 49}
    for name, change in {"revoked": {"revoked_at": now}, "expired": {"expires_at": now - timedelta(seconds=1)}}.items():
        secret = make_key(acme)
        ApiKey.objects.filter(prefix=secret[:12]).update(**change)
        tokens[name] = secret
    former = User.objects.create(email="former@luminet.example", is_operator=True)
    tokens["of a former operator"] = make_operator_token(former)
    User.objects.filter(pk=former.pk).update(is_active=False)
    return tokens | {"of a deleted organisation": make_key(deleted)}


def operators(user: User) -> dict[str, str]:
    scopes = {
        "operator": REST_SCOPES,
        "op-publish": ["policy:write"],
        "op-read": ["policy:read"],
        "op-stats": ["stats:read"],
    }
    return {name: make_operator_token(user, *given) for name, given in scopes.items()}


def keys(acme: Organisation, chat: Namespace, default: Namespace) -> dict[str, str]:
    scopes = {
        "admin": "admin",
        "publish": "policy:write",
        "read": "policy:read",
        "stats": "stats:read",
        "infer": "infer",
    }
    made = {name: make_key(acme, scope) for name, scope in scopes.items()}
    made["bound"] = make_key(acme, "policy:write", namespaces=[chat])
    made["unbound-here"] = make_key(acme, "policy:write", namespaces=[default])
    return made


def test_every_operation_has_a_row_and_every_row_an_operation() -> None:
    assert {(one.method, one.path) for one in OPERATIONS} == set(TABLE)


def test_each_caller_gets_of_each_operation_what_is_promised(world: World) -> None:
    found, promised = {}, {}
    for (method, path), kind in TABLE.items():
        for caller, outcome in OUTCOMES[kind].items():
            with undone():
                status = ask_at_home(world, caller, method, path).status_code
            found[method, path, caller] = YES if status < 300 else status
            promised[method, path, caller] = expected(method, path, caller, outcome)
    assert {key: value for key, value in found.items() if value != promised[key]} == {}
    assert len(found) > 900


def ask_at_home(world: World, caller: str, method: str, path: str) -> HttpResponse:
    """The suspended organisation's key asks about its own; everybody else about acme."""
    return world.ask(caller, method, path, **({"org": "stopped"} if caller == "suspended" else {}))


def expected(method: str, path: str, caller: str, outcome: Any) -> Any:
    # A key bound to another namespace reads its organisation; only what is in this namespace is not there for it.
    if caller == "unbound-here" and outcome == HIDDEN and "{ns}" not in path and not path_is_of_a_namespace(path):
        return YES
    if caller == "suspended" and outcome == YES and path_is_acmes(path):
        return HIDDEN
    if caller == "suspended" and "{org}" in path and path.endswith("/revisions/{number}"):
        return HIDDEN  # it never published any
    return outcome


def path_is_of_a_namespace(path: str) -> bool:
    """Things of one namespace that are named by their id."""
    return any(name in path for name in ("{operation_id}", "{rollout_id}", "{alert_id}"))


OF_ACME = ("{member_id}", "{key_id}", "{pin_id}", "{operation_id}", "{rollout_id}", "{alert_id}", "{rule_id}")


def path_is_acmes(path: str) -> bool:
    """Things of acme that are named by their id: to others they are not there."""
    return any(name in path for name in OF_ACME)


OF_ONE_ORGANISATION = [key for key in TABLE if "{org}" in key[1]]


def test_what_is_not_yours_looks_exactly_like_what_is_not_there(world: World) -> None:
    for method, path in OF_ONE_ORGANISATION:
        for caller in ("other", "bound"):
            theirs, absent = (
                answer(world, caller, method, path, org)
                for org in ("globex" if caller == "bound" else "acme", "nowhere")
            )
            assert theirs == absent, (method, path, caller)
            assert theirs[0] == HIDDEN


def answer(world: World, caller: str, method: str, path: str, org: str) -> tuple[int, Any, list[str]]:
    """Status, body and the queries it took: what could tell the two apart."""
    with undone(), CaptureQueriesContext(connection) as queries:
        response = world.ask(caller, method, path, org=org)
    problem = {**json.loads(response.content), "request_id": None}
    return response.status_code, problem, [re.sub(r"'[^']*'|\d+", "…", one["sql"]) for one in queries]


def test_a_namespace_a_key_is_not_bound_to_looks_like_one_that_is_not_there(world: World) -> None:
    for method, path in [key for key in TABLE if "{ns}" in key[1] and TABLE[key] in ("read", "publish")]:
        with undone():
            theirs = world.ask("bound", method, path, ns="default")
        with undone():
            absent = world.ask("bound", method, path, ns="nowhere")
        assert theirs.status_code == absent.status_code == HIDDEN
        assert json.loads(theirs.content)["detail"] == json.loads(absent.content)["detail"]


def test_an_operation_cannot_be_declared_without_a_rule() -> None:
    with pytest.raises(TypeError, match="rule"):
        Group("Nothing").get("/nothing")  # type: ignore[call-arg]


def test_the_api_is_reached_through_declared_operations_alone() -> None:
    """Whatever answers below /api/v1 is in the table above, or is the API's own description."""
    found = set()
    for prefix in get_resolver().url_patterns:
        if str(prefix.pattern).startswith("api/"):
            found = {str(one.pattern) for one in walk(prefix)}
    known = {path.lstrip("/") for _, path in TABLE}
    described = {"openapi.json", "docs", "docs/objects", "docs/{slug:slug}", ""}
    plain = {
        one.replace("<uuid:", "{").replace("<str:", "{").replace("<int:", "{").replace("<", "{").replace(">", "}")
        for one in found
    }
    assert plain - known - described == set()


def walk(pattern: Any) -> Iterator[Any]:
    for one in getattr(pattern, "url_patterns", ()):
        if hasattr(one, "url_patterns"):
            yield from walk(one)
        else:
            yield one


def test_lookups_of_what_belongs_to_somebody_are_nowhere_but_in_access() -> None:
    """The API asks tenants.access, a selector or a service: it never goes to the tables itself."""
    folder = Path(__file__).parents[2] / "controlplane" / "api"
    offenders = [
        f"{file.name}: {line.strip()}"
        for file in folder.rglob("*.py")
        for line in file.read_text().splitlines()
        if ".objects" in line
    ]
    assert offenders == []


ROLES: dict[str, set[str]] = {
    "viewer": {"read"},
    "editor": {"read", "publish", "publish whole"},
    "admin": {"read", "publish", "publish whole", "manage", "manage read"},
}
RULES = {
    "read": access.READ,
    "publish": access.PUBLISH,
    "publish whole": access.PUBLISH_WHOLE,
    "manage": access.MANAGE,
    "manage read": access.MANAGE_READ,
    "operate": access.OPERATE,
    "operate read": access.OPERATE_READ,
    "operate publish": access.OPERATE_PUBLISH,
}


@pytest.mark.django_db
@pytest.mark.parametrize("role", ROLES)
def test_a_members_role_says_what_they_may_do_in_their_organisation_and_nothing_elsewhere(role: str) -> None:
    acme, _ = make_organisation("acme"), make_organisation("globex")
    member, _ = member_invite(actor=SYSTEM, organisation=acme, email="kim@acme.example", role=role)
    actor = access.actor_for_member(member)
    for name, rule in RULES.items():
        if name in ROLES[role]:
            assert access.organisation_for(actor, "acme", rule) == acme
        else:
            with pytest.raises(NotPermitted):
                access.organisation_for(actor, "acme", rule)
        with pytest.raises(NotFound):
            access.organisation_for(actor, "globex", rule)
