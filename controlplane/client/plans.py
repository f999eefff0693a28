"""Reviewed plans: write them to a file, read them back, and compare them with the current plan."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.client.changes import A_CHANGE, WORDS
from controlplane.client.depth import is_too_deep
from controlplane.client.errors import ClientError, shortened
from controlplane.client.shapes import Unexpected, shaped
from controlplane.client.tables import cell

FORMAT = "luminet plan 1"
LARGEST = 64 * 1024 * 1024  # a document of 8 MiB and its changes
NAMED_AT_MOST = 20
A_PLAN = {
    "hash": str,
    "changes": [A_CHANGE],
    "summary": {"create": int, "change": int, "delete": int, "objects_deleted": int},
    "problems": list,
}


class Outdated(ClientError):
    """The current plan differs from the reviewed one. Nothing was changed."""

    exit_status = 3

    def __init__(self, planned: Mapping[str, Any], current: Mapping[str, Any]) -> None:
        lines = list(_differences(planned, current)) or ["its hash or its summary does not belong to its changes"]
        first = "The plan is out of date. Nothing was changed. Run `luminet plan` again. Differences:"
        super().__init__("\n".join([first, *shortened(lines, NAMED_AT_MOST)]))


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A request to the control plane, and the plan that it returned for it."""

    request: Mapping[str, Any]
    plan: Mapping[str, Any]

    def check(self, current: Mapping[str, Any]) -> None:
        if self.plan != current:
            raise Outdated(self.plan, current)


def plan_write(name: str, reviewed: Reviewed) -> None:
    content = {"format": FORMAT, "request": reviewed.request, "plan": reviewed.plan}
    try:
        with open(name, "w", encoding="utf-8", opener=_private) as file:
            json.dump(content, file, indent=2, ensure_ascii=False)
            file.write("\n")
    except OSError as error:
        raise ClientError(f"{name}: {error.strerror or error}") from None


def plan_read(name: str) -> Reviewed:
    """Read what `plan_write` wrote. Raise ClientError for a configuration file, or if it is too large or too deep."""
    try:
        with Path(name).open("rb") as file:
            raw_content = file.read(LARGEST + 1)
        content = json.loads(raw_content) if len(raw_content) <= LARGEST else None
    except OSError as error:
        raise ClientError(f"{name}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        advice = (
            f"write one with `luminet plan -f FILE --out PLAN.json`; a configuration file is applied with -f {name}"
        )
        raise ClientError(f"{name}: is not a plan: {advice}")
    try:
        request, plan = shaped(content.get("request"), {"document": object}), shaped(content.get("plan"), A_PLAN)
    except Unexpected as error:
        raise ClientError(f"{name}: is a damaged plan ({error}): plan again") from None
    if is_too_deep(request["document"]):
        raise ClientError(f"{name}: is a damaged plan (its document is nested too deeply): plan again")
    return Reviewed(request, plan)


def _private(name: str, flags: int) -> int:
    descriptor = os.open(name, flags, 0o600)
    os.fchmod(descriptor, 0o600)  # also if the file existed before
    return descriptor


def _differences(planned: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    planned_changes, current_changes = _by_name(planned), _by_name(current)
    for verb, scope in {**planned_changes, **current_changes}:
        before, after = planned_changes.get((verb, scope)), current_changes.get((verb, scope))
        if before != after:
            yield f"{cell(scope)}: {_words(WORDS.get(verb, cell(verb)), before, after)}"


def _by_name(plan: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(change["verb"], change["place"]): change for change in plan["changes"]}


def _words(action: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    if before is None:
        return f"now it would also {action}"
    if after is None:
        return f"it would no longer {action}"
    revisions = before.get("revision"), after.get("revision")
    if revisions[0] != revisions[1]:
        return f"it was at revision {cell(revisions[0])} and is at revision {cell(revisions[1])}"
    if before.get("inherited") != after.get("inherited"):
        return "a level above it has changed"
    if before.get("contents") != after.get("contents"):
        return "something inside it has changed"
    fields = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return f"the plan differs in {', '.join(map(cell, fields))}"
