"""`plan`, `apply`, `export` and `schema`: send a configuration file to the control plane, and read it back."""

from collections.abc import Mapping
from typing import Any

import click

from controlplane.client import amounts
from controlplane.client.asking import DONE, STARTED, agreed, operation_wait, working
from controlplane.client.changes import plan_lines
from controlplane.client.command import FILE_HELP, Session, rest_command, together, wait_options, yes_option
from controlplane.client.errors import ClientError, Refused, fields_of, problem_lines
from controlplane.client.files import document_dump, document_load
from controlplane.client.plans import A_PLAN, Outdated, Reviewed, plan_read, plan_write
from controlplane.client.policy_help import with_policy_fields
from controlplane.client.rest import Rest
from controlplane.client.shapes import shaped

SLOW_SECONDS = 300.0  # a large file is a large transaction
WOULD_CHANGE = 2
MAX_DELETES = 10
MAX_DELETES_HELP = f"refuse to delete more organisations and namespaces than this ({MAX_DELETES}); those inside count"
STALE = 412


scope_options = together(
    click.option("--prune", is_flag=True, help="delete what the file owns and does not name; needs --org or an owner"),
    click.option("--org", multiple=True, metavar="SLUG", help="prune only in this one; may be repeated"),
    click.option("--take-ownership", is_flag=True, help="take over existing objects of another owner, or of none"),
)


@with_policy_fields
@rest_command
@click.option("-f", "--file", required=True, metavar="FILE", help=FILE_HELP)
@scope_options
@click.option("--out", metavar="PLAN.json", help="write the plan, to be reviewed and applied exactly")
def plan(session: Session, file: str, out: str | None, **scope: Any) -> int:
    request = _request(file, **scope)
    planned = _planned(session.rest, request)
    if not session.is_json(planned):
        session.paper.say(*plan_lines(planned, session.paper))
    _problems_refuse(planned)
    if out:
        plan_write(out, Reviewed(request, planned))
    return WOULD_CHANGE if planned["changes"] else 0


@with_policy_fields
@rest_command
@click.argument("plan", required=False, metavar="[PLAN.json]", help="what plan --out wrote; status 3: it is outdated")
@click.option("-f", "--file", metavar="FILE", help=FILE_HELP)
@scope_options
@click.option("--max-deletes", type=amounts.revision, default=str(MAX_DELETES), metavar="N", help=MAX_DELETES_HELP)
@wait_options
@yes_option
def apply(
    session: Session,
    plan: str | None,
    file: str | None,
    max_deletes: int,
    wait: bool,
    timeout: float,
    yes: bool,
    **scope: Any,
) -> int:
    rest, paper = session.rest, session.paper
    reviewed = _reviewed(plan, file, any(scope.values()))
    request = _request(file, **scope) if reviewed is None else reviewed.request
    planned = _planned(rest, request)
    if not session.as_json:
        paper.say(*plan_lines(planned, paper))
    if reviewed is not None:
        reviewed.check(planned)
    _problems_refuse(planned)
    if not planned["changes"]:
        session.show({"hash": planned["hash"], "changes": [], "operation": None})
        return 0
    _deletions_limit(planned, max_deletes)
    _deletions_agreed(planned, yes=yes or reviewed is not None)
    started = _applied(rest, request, planned, max_deletes)
    operation = operation_wait(rest, started["operation"], seconds=timeout) if wait else None
    ended = f": {operation['state']}" if operation else ""
    answer = started if operation is None else {**started, "state": operation["state"]}
    session.show(answer, f"Applied. Operation {started['operation']}{ended}")
    return 0 if operation is None or operation["state"] == DONE else 1


@rest_command
@click.option("--org", metavar="SLUG", help="only this organisation")
@click.option("--owner", metavar="NAME", help="only what your file of this owner owns, as that file")
def export(session: Session, org: str | None, owner: str | None) -> None:
    session.rest.timeout = SLOW_SECONDS
    document = shaped(session.rest.get("/config", organisation=org, owner=owner).body, dict)
    session.show(document, *document_dump(document).rstrip("\n").split("\n"))


@rest_command
def schema(session: Session) -> None:
    session.paper.json(shaped(session.rest.get("/config/schema").body, dict))


def _reviewed(plan: str | None, file: str | None, is_scoped: bool) -> Reviewed | None:
    if (plan is None) == (file is None):
        raise ClientError("apply takes either a configuration file (-f FILE) or a reviewed plan (PLAN.json)")
    if plan is None:
        return None
    if is_scoped:
        raise ClientError("--prune, --org and --take-ownership are part of the plan: give them to `luminet plan`")
    return plan_read(plan)


def _request(file: str | None, *, prune: bool, org: tuple[str, ...], take_ownership: bool) -> dict[str, Any]:
    scope = {"prune_organisations": list(org)} if org else {}
    takes = {"take_ownership": True} if take_ownership else {}
    return {"document": document_load(str(file)), "prune": prune, **scope, **takes}


def _planned(rest: Rest, request: Mapping[str, Any]) -> Mapping[str, Any]:
    planned: Mapping[str, Any] = shaped(_ask(rest, "/config/plan", request, "Planning", repeatable=True), A_PLAN)
    return planned


def _applied(rest: Rest, request: Mapping[str, Any], planned: Mapping[str, Any], max_deletes: int) -> Mapping[str, Any]:
    """Apply exactly the plan that was shown. Raise Outdated with the differences if the plan has changed."""
    body = {**request, "expected_plan": planned["hash"], "max_deletes": max_deletes}
    try:
        started: Mapping[str, Any] = shaped(_ask(rest, "/config/apply", body, "Applying"), STARTED)
    except Refused as error:
        if error.status != STALE:
            raise
        raise Outdated(planned, _planned(rest, request)) from None
    return started


def _ask(rest: Rest, path: str, body: Any, message: str, *, repeatable: bool = False) -> Mapping[str, Any]:
    rest.timeout = SLOW_SECONDS
    with working(message):
        response_body: Mapping[str, Any] = rest.post(path, body, repeatable=repeatable).body
    return response_body


def _problems_refuse(planned: Mapping[str, Any]) -> None:
    if problems := fields_of(planned["problems"]):
        raise ClientError("\n".join(["This cannot be applied, nothing was changed:", *problem_lines(problems)]))


def _deletions_limit(planned: Mapping[str, Any], most: int) -> None:
    count = planned["summary"]["objects_deleted"]
    if count > most:
        raise ClientError(
            f"This deletes {count} organisations and namespaces, and --max-deletes allows {most}: nothing was changed. "
            f"To allow it, pass --max-deletes {count}"
        )


def _deletions_agreed(planned: Mapping[str, Any], *, yes: bool) -> None:
    """Confirm deletions: a single one by its place, several by their number."""
    scopes = [change["place"] for change in planned["changes"] if change["verb"].endswith(".delete")]
    if len(scopes) == 1:
        agreed(f"This deletes {scopes[0]}, with all that is cached in it", scopes[0], yes=yes)
    elif scopes:
        names = ", ".join(scopes[:5]) + (" …" if len(scopes) > 5 else "")
        agreed(
            f"This deletes {len(scopes)} things ({names}), with all that is cached in them", str(len(scopes)), yes=yes
        )
