"""`get` and `whoami`: tables for people, JSON for programs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from controlplane.client import amounts
from controlplane.client.alerts import alerts
from controlplane.client.command import Session, rest_command
from controlplane.client.errors import ClientError
from controlplane.client.places import namespace_read, organisation_read, place_read
from controlplane.client.prices import prices
from controlplane.client.rest import segment
from controlplane.client.shapes import Shape, shaped
from controlplane.client.tables import DIM, bound

Show = Callable[[Session, str | None, int | None], None]
A_POLICY = {"revision": int, "effective_hash": str, "policy": dict}
AN_EFFECTIVE = {
    "policy": dict,
    "origin": dict,
    "model_origin": dict,
    "effective_hash": str,
    "levels": [{"level": str, "revision": int}],
}
AN_ENFORCEMENT = {"grade": str, "enforcing": int, "agents": int}
Path = Callable[[str | None], str]


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of the API: its path, and the fields that are its columns."""

    path: Path
    columns: Mapping[str, str]  # head → field
    empty: str

    def __call__(self, session: Session, argument: str | None, limit: int | None) -> None:
        records = list(islice(session.rest.pages(self.path(argument)), limit))
        if session.is_json(records):
            return
        shaped(records, [_shape(self.columns.values())])
        rows = [[_at(record, field) for field in self.columns.values()] for record in records]
        session.paper.table(list(self.columns), rows, empty=self.empty)


@dataclass(frozen=True, slots=True)
class Single:
    """A single object of the API, printed one field a line."""

    path: Path
    inside: str | None = None  # the member that people want to see

    def __call__(self, session: Session, argument: str | None, limit: int | None) -> None:
        record = shaped(session.rest.get(self.path(argument)).body, dict)
        if session.as_json:
            session.paper.json(record)
        elif self.inside is None:
            session.paper.record(list(record.items()))
        else:
            shaped(record, {"revision": int, self.inside: dict})
            session.paper.record([("revision", record["revision"]), *record[self.inside].items()])


def _policy(session: Session, scope: str | None, limit: int | None) -> None:
    response = shaped(session.rest.get(f"{place_read(scope).path}/policy").body, A_POLICY)
    if session.is_json(response):
        return
    session.paper.record([("revision", response["revision"]), ("effective_hash", response["effective_hash"])])
    models = shaped(response["policy"].get("models", {}), dict)
    rows = [[name, None, value] for name, value in response["policy"].items() if name != "models"]
    rows += [[name, model, value] for model, values in models.items() for name, value in shaped(values, dict).items()]
    command_line = " ".join(["luminet get effective", *([scope] if scope else [])])
    empty = f"It says nothing itself: everything is inherited. What is in force: {command_line}"
    session.paper.table(["FIELD", "MODEL", "VALUE"], rows, empty=empty)


def _effective(session: Session, scope: str | None, limit: int | None, model: str | None = None) -> None:
    effective = shaped(session.rest.get(f"{place_read(scope).path}/policy/effective", model=model).body, AN_EFFECTIVE)
    if session.is_json(effective):
        return
    rows = [
        [name, value, _origin(effective, name), *_enforcement(effective, name)]
        for name, value in effective["policy"].items()
        if name != "models"
    ]
    session.paper.table(["FIELD", "VALUE", "FROM", "ENFORCED", "WHY NOT"], rows, empty="")
    levels = ", ".join(f"{level['level']} {level['revision']}" for level in effective["levels"])
    session.paper.say(session.paper.paint(f"revisions: {levels} · hash {effective['effective_hash']}", DIM))


def _enforcement(effective: Mapping[str, Any], name: str) -> list[Any]:
    """Return a field's enforcement and reason; an older control plane reports none."""
    enforcement = shaped(effective.get("enforcement", {}), dict).get(name)
    if enforcement is None:
        return [None, None]
    shaped(enforcement, AN_ENFORCEMENT)
    grade = str(enforcement["grade"]).replace("_", " ")
    return [
        f"{grade}, by {enforcement['enforcing']} of {enforcement['agents']}" if enforcement["agents"] else grade,
        enforcement.get("why"),
    ]


def _bounds(session: Session, scope: str | None, limit: int | None) -> None:
    path = f"{organisation_read(scope).path}/bounds"
    response = shaped(session.rest.get(path).body, {"revision": int, "bounds": dict})
    if session.is_json(response):
        return
    rows = [[name, bound(allowed)] for name, allowed in response["bounds"].items()]
    session.paper.table(["FIELD", "ITS PEOPLE MAY CHOOSE"], rows, empty="")
    footer = f"revision {response['revision']} · everything else only operators change"
    session.paper.say(session.paper.paint(footer, DIM))


def _origin(effective: Mapping[str, Any], name: str) -> str:
    via = effective["model_origin"].get(name)
    return f"model, said by {via}" if via else str(effective["origin"].get(name, "–"))


def _organisation(below: str = "") -> Path:
    return lambda scope: organisation_read(scope).path + below


def _plain(path: str) -> Path:
    def find(argument: str | None) -> str:
        if argument is not None:
            raise ClientError(f"this takes no place, and {argument!r} was given")
        return path

    return find


def _by_id(path: str, noun: str) -> Path:
    def find(object_id: str | None) -> str:
        if object_id is None:
            raise ClientError(f"this wants the id of {noun}")
        return f"{path}/{segment(object_id)}"

    return find


NOUNS: dict[str, Show] = {
    "orgs": Listing(
        _plain("/orgs"),
        {"ORGANISATION": "slug", "NAME": "name", "STATE": "state", "OWNER": "owner", "SINCE": "created_at"},
        "There is no organisation yet: luminet create org SLUG",
    ),
    "org": Single(_organisation()),
    "namespaces": Listing(
        _organisation("/namespaces"),
        {
            "NAMESPACE": "slug", "NAME": "name", "GROUP": "group", "OWNER": "owner", "POLICY": "policy_revision",
            "EPOCH": "epoch",
        },
        "It has no namespaces: luminet create namespace ORG/SLUG",
    ),
    "namespace": Single(lambda scope: namespace_read(scope).path),
    "policy": _policy,
    "effective": _effective,
    "revisions": Listing(
        lambda scope: f"{place_read(scope).path}/policy/revisions",
        {"REVISION": "revision", "AT": "at", "BY": "author", "NOTE": "note", "POLICY": "policy"},
        "Nothing has been published here: write its policy into a file, then luminet apply -f FILE",
    ),
    "members": Listing(
        _organisation("/members"), {"EMAIL": "email", "ROLE": "role", "STATE": "state", "ID": "id"},
        "It has no members: luminet create member ORG EMAIL --role viewer",
    ),
    "keys": Listing(
        _organisation("/keys"),
        {
            "NAME": "name", "BEGINS": "prefix", "SCOPES": "scopes", "NAMESPACES": "namespaces",
            "EXPIRES": "expires_at", "LAST USED": "last_used_at", "ID": "id",
        },
        "It has no keys: luminet create key ORG NAME --scope infer",
    ),
    "pins": Listing(
        lambda scope: f"{namespace_read(scope).path}/pins",
        {
            "NAME": "name", "MODEL": "model", "CONTENT": "content", "BYTES": "content_bytes",
            "EXPIRES": "expires_at", "ID": "id",
        },
        "Nothing is pinned here: pins are created over the REST API, POST …/pins",
    ),
    "bounds": _bounds,
    "limits": Single(_organisation("/limits"), "limits"),
    "operation": Single(_by_id("/operations", "an operation")),
    "audit": Listing(
        _plain("/audit"), {"AT": "at", "WHO": "actor.name", "DID": "verb", "TO": "target", "FROM": "address"},
        "Nothing has been done yet: every change will be listed here.",
    ),
    "groups": Listing(
        _plain("/agent-groups"), {"GROUP": "slug", "NAME": "name", "SINCE": "created_at"},
        "There is no agent group yet: luminet create group SLUG",
    ),
    "agents": Listing(
        _plain("/fleet/agents"),
        {
            "AGENT": "id", "KIND": "kind", "BACKEND": "backend", "STATE": "state", "IN SYNC": "in_sync",
            "HEARD S AGO": "last_seen_seconds", "GROUP": "group", "WHY": "why",
        },
        "No agent has joined yet: luminet join-token create NAME, then luminet agent on its machine",
    ),
    "agent": Single(_by_id("/fleet/agents", "an agent")),
    "join-tokens": Listing(
        _plain("/fleet/join-tokens"),
        {
            "NAME": "name", "BEGINS": "prefix", "STATE": "state", "KIND": "kind", "GROUP": "group", "AGENT": "agent",
            "USES LEFT": "uses_left", "EXPIRES": "expires_at", "ID": "id",
        },
        "There is no join token: luminet join-token create NAME",
    ),
    "rollouts": Listing(
        _plain("/rollouts"),
        {
            "PLACE": "place", "REVISION": "revision", "STATE": "state", "STEP": "step", "OF": "steps", "WHY": "why",
            "SINCE": "created_at", "ID": "id",
        },
        "Nothing has been rolled out yet: publish a policy with a rollout",
    ),
    "rollout": Single(_by_id("/rollouts", "a rollout")),
    "quality": Listing(
        _plain("/quality"),
        {
            "MODEL": "model", "FORMAT": "kv_dtype", "BACKEND": "backend", "VERDICT": "verdict",
            "MAY SERVE": "may_serve", "AT": "created_at", "REVISION": "revision",
        },
        "Nothing is known of any format: luminet quality PATH --device cuda --publish NAME",
    ),
    "prices": prices,
    "alerts": alerts,
    "alert-rules": Listing(
        _plain("/alert-rules"),
        {
            "NAME": "name", "PLACE": "place", "METRIC": "metric", "IS": "comparison", "THRESHOLD": "threshold",
            "BACK AT": "clears_at", "FOR S": "for_seconds", "ON": "enabled", "WEBHOOK": "webhook_url",
            "BUILT IN": "built_in", "ID": "id",
        },
        "There is no rule: luminet create alert-rule NAME --metric hit_ratio --below 0.5",
    ),
}  # fmt: skip


@rest_command
@click.argument("noun", metavar="WHAT", type=click.Choice(list(NOUNS)), help=", ".join(NOUNS))
@click.argument("place", required=False, help="acme, acme/chat, or an id; none: the fleet")
@click.option("--limit", type=amounts.count, metavar="N", help="of a list, the first so many")
@click.option("--model", help="with effective: what is in force for this model")
def get(session: Session, noun: str, place: str | None, limit: int | None, model: str | None) -> None:
    if model is not None and noun != "effective":
        raise ClientError("--model goes with effective alone")
    if model is None:
        NOUNS[noun](session, place, limit)
    else:
        _effective(session, place, limit, model)


@rest_command
def whoami(session: Session) -> None:
    identity = shaped(session.rest.get("/whoami").body, dict)
    if not session.is_json(identity):
        session.paper.record([("url", session.rest.url), *identity.items()])


def _shape(fields: Iterable[str]) -> Shape:
    return {head: {rest: object} if rest else object for head, _, rest in (field.partition(".") for field in fields)}


def _at(record: Mapping[str, Any], field: str) -> Any:
    for name in field.split("."):
        record = record[name]
    return record
