"""`plan`, `apply`, `export` and `schema`: a file's way to the control plane and back."""

import argparse
from collections.abc import Mapping
from typing import Any

from controlplane.client.asking import DONE, STARTED, agreed, operation_wait, working
from controlplane.client.changes import plan_lines
from controlplane.client.errors import ClientError, Refused, fields_of, problem_lines
from controlplane.client.files import document_dump, document_load
from controlplane.client.plans import A_PLAN, Outdated, Reviewed, plan_read, plan_write
from controlplane.client.rest import Rest
from controlplane.client.shapes import shaped
from controlplane.client.tables import Paper

SLOW_SECONDS = 300.0  # a large file is a large transaction
WOULD_CHANGE = 2
STALE = 412


def plan(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    request = _request(options)
    found = _planned(rest, request)
    if options.json:
        paper.json(found)
    else:
        paper.say(*plan_lines(found, paper))
    _problems_refuse(found)
    if options.out:
        plan_write(options.out, Reviewed(request, found))
    return WOULD_CHANGE if found["changes"] else 0


def apply(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    reviewed = _reviewed(options)
    request = _request(options) if reviewed is None else reviewed.request
    found = _planned(rest, request)
    if not options.json:
        paper.say(*plan_lines(found, paper))
    if reviewed is not None:
        reviewed.check(found)
    _problems_refuse(found)
    if not found["changes"]:
        return _told(options, paper, {"hash": found["hash"], "changes": [], "operation": None})
    _deletions_limit(found, options.max_deletes)
    _deletions_agreed(found, yes=options.yes or reviewed is not None)
    done = _applied(rest, request, found, options.max_deletes)
    operation = operation_wait(rest, done["operation"], seconds=options.timeout) if options.wait else None
    if not options.json:
        paper.say(f"Applied. Operation {done['operation']}{': ' + operation['state'] if operation else ''}")
    _told(options, paper, done if operation is None else {**done, "state": operation["state"]})
    return 0 if operation is None or operation["state"] == DONE else 1


def export(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    rest.timeout = SLOW_SECONDS
    document = shaped(rest.get("/config", organisation=options.org, owner=options.owner).body, dict)
    if options.json:
        paper.json(document)
    else:
        paper.say(*document_dump(document).rstrip("\n").split("\n"))
    return 0


def schema(options: argparse.Namespace, rest: Rest, paper: Paper) -> int:
    paper.json(shaped(rest.get("/config/schema").body, dict))
    return 0


def _reviewed(options: argparse.Namespace) -> Reviewed | None:
    if (options.plan is None) == (options.file is None):
        raise ClientError("apply takes either a configuration file (-f FILE) or a reviewed plan (PLAN.json)")
    if options.plan is None:
        return None
    if options.prune or options.org or options.take_ownership:
        raise ClientError("--prune, --org and --take-ownership are part of the plan: give them to `luminet plan`")
    return plan_read(options.plan)


def _request(options: argparse.Namespace) -> dict[str, Any]:
    scope = {"prune_organisations": options.org} if options.org else {}
    takes = {"take_ownership": True} if options.take_ownership else {}
    return {"document": document_load(options.file), "prune": options.prune, **scope, **takes}


def _planned(rest: Rest, request: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = shaped(_ask(rest, "/config/plan", request, "Planning", repeatable=True), A_PLAN)
    return found


def _applied(rest: Rest, request: Mapping[str, Any], found: Mapping[str, Any], max_deletes: int) -> Mapping[str, Any]:
    """Exactly what was shown, or Outdated, which names what somebody changed meanwhile."""
    body = {**request, "expected_plan": found["hash"], "max_deletes": max_deletes}
    try:
        done: Mapping[str, Any] = shaped(_ask(rest, "/config/apply", body, "Applying"), STARTED)
    except Refused as error:
        if error.status != STALE:
            raise
        raise Outdated(found, _planned(rest, request)) from None
    return done


def _ask(rest: Rest, path: str, body: Any, what: str, *, repeatable: bool = False) -> Mapping[str, Any]:
    rest.timeout = SLOW_SECONDS
    with working(what):
        found: Mapping[str, Any] = rest.post(path, body, repeatable=repeatable).body
    return found


def _problems_refuse(found: Mapping[str, Any]) -> None:
    if problems := fields_of(found["problems"]):
        raise ClientError("\n".join(["This cannot be applied, nothing was changed:", *problem_lines(problems)]))


def _deletions_limit(found: Mapping[str, Any], most: int) -> None:
    count = found["summary"]["objects_deleted"]
    if count > most:
        raise ClientError(
            f"This deletes {count} organisations and namespaces, and --max-deletes allows {most}: nothing was changed. "
            f"To allow it, pass --max-deletes {count}"
        )


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
