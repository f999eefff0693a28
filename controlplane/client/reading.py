"""`get` and `whoami`: what there is, as tables for people and as JSON for programs."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from controlplane.client.alerts import alerts
from controlplane.client.errors import ClientError
from controlplane.client.places import namespace_read, organisation_read, place_read
from controlplane.client.prices import prices
from controlplane.client.rest import Rest, segment
from controlplane.client.shapes import Shape, shaped
from controlplane.client.tables import DIM, Paper, bound

Show = Callable[[argparse.Namespace, Rest, Paper], int]
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
    """A list of the API: where it is and which of its fields are columns."""

    path: Path
    columns: Mapping[str, str]  # head → field
    empty: str

    def __call__(self, options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
        found = list(islice(rest.pages(self.path(options.place)), options.limit))
        if options.json:
            paper.json(found)
        else:
            shaped(found, [_shape(self.columns.values())])
            rows = [[_at(one, field) for field in self.columns.values()] for one in found]
            paper.table(list(self.columns), rows, empty=self.empty)
        return 0


@dataclass(frozen=True, slots=True)
class Single:
    """One thing of the API, a field a line."""

    path: Path
    inside: str | None = None  # the member that holds what people want to see

    def __call__(self, options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
        found = shaped(rest.get(self.path(options.place)).body, dict)
        if options.json:
            paper.json(found)
        elif self.inside is None:
            paper.record(_pairs(found))
        else:
            shaped(found, {"revision": int, self.inside: dict})
            paper.record(_pairs({"revision": found["revision"], **found[self.inside]}))
        return 0


def _policy(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    found = shaped(rest.get(f"{place_read(options.place).path}/policy").body, A_POLICY)
    if options.json:
        paper.json(found)
        return 0
    paper.record([("revision", found["revision"]), ("effective_hash", found["effective_hash"])])
    models = shaped(found["policy"].get("models", {}), dict)
    rows = [[name, None, value] for name, value in found["policy"].items() if name != "models"]
    rows += [[name, model, value] for model, values in models.items() for name, value in shaped(values, dict).items()]
    look = " ".join(["luminet get effective", *([options.place] if options.place else [])])
    empty = f"It says nothing itself: everything is inherited. What is in force: {look}"
    paper.table(["FIELD", "MODEL", "VALUE"], rows, empty=empty)
    return 0


def _effective(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    found = shaped(
        rest.get(f"{place_read(options.place).path}/policy/effective", model=options.model).body, AN_EFFECTIVE
    )
    if options.json:
        paper.json(found)
        return 0
    rows = [
        [name, value, _origin(found, name), *_enforcement(found, name)]
        for name, value in found["policy"].items()
        if name != "models"
    ]
    paper.table(["FIELD", "VALUE", "FROM", "ENFORCED", "WHY NOT"], rows, empty="")
    levels = ", ".join(f"{one['level']} {one['revision']}" for one in found["levels"])
    paper.say(paper.paint(f"revisions: {levels} · hash {found['effective_hash']}", DIM))
    return 0


def _enforcement(found: Mapping[str, Any], name: str) -> list[Any]:
    """Of one field; an older control plane reports none."""
    told = shaped(found.get("enforcement", {}), dict).get(name)
    if told is None:
        return [None, None]
    shaped(told, AN_ENFORCEMENT)
    grade = str(told["grade"]).replace("_", " ")
    return [f"{grade}, by {told['enforcing']} of {told['agents']}" if told["agents"] else grade, told.get("why")]


def _bounds(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    found = shaped(rest.get(f"{organisation_read(options.place).path}/bounds").body, {"revision": int, "bounds": dict})
    if options.json:
        paper.json(found)
        return 0
    paper.table(
        ["FIELD", "ITS PEOPLE MAY CHOOSE"], [[name, bound(one)] for name, one in found["bounds"].items()], empty=""
    )
    paper.say(paper.paint(f"revision {found['revision']} · everything else only operators change", DIM))
    return 0


def _origin(found: Mapping[str, Any], name: str) -> str:
    via = found["model_origin"].get(name)
    return f"model, said by {via}" if via else str(found["origin"].get(name, "–"))


def _organisation(below: str = "") -> Path:
    return lambda place: organisation_read(place).path + below


def _plain(path: str) -> Path:
    def find(place: str | None) -> str:
        if place is not None:
            raise ClientError(f"this takes no place, and {place!r} was given")
        return path

    return find


def _by_id(path: str, what: str) -> Path:
    def find(asked: str | None) -> str:
        if asked is None:
            raise ClientError(f"this wants the id of {what}")
        return f"{path}/{segment(asked)}"

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
    "namespace": Single(lambda place: namespace_read(place).path),
    "policy": _policy,
    "effective": _effective,
    "revisions": Listing(
        lambda place: f"{place_read(place).path}/policy/revisions",
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
        lambda place: f"{namespace_read(place).path}/pins",
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


def get(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    if options.model is not None and options.noun != "effective":
        raise ClientError("--model goes with effective alone")
    return NOUNS[options.noun](options, rest, paper)


def whoami(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    found = shaped(rest.get("/whoami").body, dict)
    if options.json:
        paper.json(found)
    else:
        paper.record([("url", rest.url), *_pairs(found)])
    return 0


def _pairs(found: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    return list(found.items())


def _shape(fields: Iterable[str]) -> Shape:
    return {head: {rest: object} if rest else object for head, _, rest in (field.partition(".") for field in fields)}


def _at(item: Mapping[str, Any], field: str) -> Any:
    for name in field.split("."):
        item = item[name]
    return item
