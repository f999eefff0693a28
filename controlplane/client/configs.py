"""`plan`, `apply`, `export` and `schema`: a file's way to the control plane and back."""

import argparse
from collections.abc import Mapping
from typing import Any

from controlplane.client.asking import DONE, STARTED, agreed, operation_wait, working
from controlplane.client.changes import A_CHANGE, plan_lines
from controlplane.client.errors import ClientError, fields_of, problem_lines
from controlplane.client.files import document_dump, document_load
from controlplane.client.rest import Rest
from controlplane.client.shapes import shaped
from controlplane.client.tables import Paper

SLOW_SECONDS = 300.0  # a large file is a large transaction
WOULD_CHANGE = 2
A_PLAN = {
    "hash": str,
    "changes": [A_CHANGE],
    "summary": {"create": int, "change": int, "delete": int},
    "problems": list,
}


def plan(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    found = _planned(options, rest)
    if options.json:
        paper.json(found)
    else:
        paper.say(*plan_lines(found, paper))
    _problems_refuse(found)
    return WOULD_CHANGE if found["changes"] else 0


def apply(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    body = _body(options)
    found = shaped(_ask(rest, "/config/plan", body, "Planning", repeatable=True), A_PLAN)
    if not options.json:
        paper.say(*plan_lines(found, paper))
    _problems_refuse(found)
    if not found["changes"]:
        return _told(options, paper, {"hash": found["hash"], "changes": [], "operation": None})
    _deletions_agreed(found, yes=options.yes)
    done = shaped(_ask(rest, "/config/apply", {**body, "expected_plan": found["hash"]}, "Applying"), STARTED)
    operation = operation_wait(rest, done["operation"], seconds=options.timeout) if options.wait else None
    if not options.json:
        paper.say(f"Applied. Operation {done['operation']}{': ' + operation['state'] if operation else ''}")
    _told(options, paper, done if operation is None else {**done, "state": operation["state"]})
    return 0 if operation is None or operation["state"] == DONE else 1


def export(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    rest.timeout = SLOW_SECONDS
    document = shaped(rest.get("/config", organisation=options.org).body, dict)
    if options.json:
        paper.json(document)
    else:
        paper.say(*document_dump(document).rstrip("\n").split("\n"))
    return 0


def schema(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    paper.json(shaped(rest.get("/config/schema").body, dict))
    return 0


def _planned(options: argparse.Namespace, rest: Rest) -> Mapping[str, Any]:
    found: Mapping[str, Any] = shaped(_ask(rest, "/config/plan", _body(options), "Planning", repeatable=True), A_PLAN)
    return found


def _body(options: argparse.Namespace) -> dict[str, Any]:
    return {"document": document_load(options.file), "prune": options.prune}


def _ask(rest: Rest, path: str, body: Any, what: str, *, repeatable: bool = False) -> Mapping[str, Any]:
    rest.timeout = SLOW_SECONDS
    with working(what):
        found: Mapping[str, Any] = rest.post(path, body, repeatable=repeatable).body
    return found


def _problems_refuse(found: Mapping[str, Any]) -> None:
    if problems := fields_of(found["problems"]):
        raise ClientError("\n".join(["This cannot be applied, nothing was changed:", *problem_lines(problems)]))


def _deletions_agreed(found: Mapping[str, Any], *, yes: bool) -> None:
    """One is named by its place, several by their number."""
    places = [one["place"] for one in found["changes"] if one["verb"].endswith(".delete")]
    if len(places) == 1:
        agreed(f"This deletes {places[0]}, with all that is cached in it", places[0], yes=yes)
    elif places:
        named = ", ".join(places[:5]) + (" …" if len(places) > 5 else "")
        agreed(
            f"This deletes {len(places)} things ({named}), with all that is cached in them", str(len(places)), yes=yes
        )


def _told(options: argparse.Namespace, paper: Paper, done: Mapping[str, Any]) -> int:
    if options.json:
        paper.json(done)
    return 0
