"""Format a plan for people: one line for each action and each field, and its warnings."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from controlplane.client.shapes import shaped
from controlplane.client.tables import DIM, GREEN, RED, YELLOW, Paper, bound, cell, width

SIGNS = {"create": ("+", GREEN), "delete": ("-", RED)}
A_DIFFERENCE = {"field": str, "model": object, "before": object, "after": object}
A_CHANGE = {"verb": str, "place": str, "differences": [A_DIFFERENCE], "warnings": list}
CHANGED = ("~", YELLOW)
WORDS = {
    "organisation.create": "create the organisation",
    "organisation.update": "change the organisation",
    "organisation.delete": "delete the organisation",
    "namespace.create": "create the namespace",
    "namespace.update": "change the namespace",
    "namespace.delete": "delete the namespace",
    "limits.set": "set limits",
    "bounds.set": "set bounds",
    "policy.publish": "publish a policy",
}
NAMESPACES = "namespaces"


def plan_lines(plan: Mapping[str, Any], paper: Paper) -> list[str]:
    changes, count = plan["changes"], plan["summary"]
    if not changes:
        return ["Nothing to change."]
    widest = max(width(cell(change["place"])) for change in changes)
    lines = [line for change in changes for line in _change_lines(change, widest, paper)]
    inside = "" if count["objects_deleted"] == count["delete"] else f" ({count['objects_deleted']} with all inside)"
    return [
        *lines,
        "",
        f"{count['create']} to create, {count['change']} to change, {count['delete']} to delete{inside}.",
    ]


def _change_lines(change: Mapping[str, Any], widest: int, paper: Paper) -> Iterator[str]:
    verb = str(change["verb"])
    sign, colour = SIGNS.get(verb.partition(".")[2], CHANGED)
    words = WORDS.get(verb, cell(verb)) + _more(change)
    yield f"{paper.paint(sign, colour)} {cell(change['place'])}{' ' * (widest - width(cell(change['place'])))}  {words}"
    yield from difference_lines(change["differences"], paper, bound if verb == "bounds.set" else cell)
    if change.get("more_differences"):
        yield f"    … and {cell(change['more_differences'])} more"
    for warning in change["warnings"]:
        yield f"    {paper.paint('!', YELLOW)} {cell(warning)}"


def difference_lines(
    differences: list[Mapping[str, Any]], paper: Paper, render: Callable[[Any], str] = cell
) -> Iterator[str]:
    for difference in differences:
        model = f" ({cell(difference['model'])})" if difference["model"] else ""
        before, after = render(difference["before"]), render(difference["after"])
        yield f"    {cell(difference['field'])}{model}: {paper.paint(before, DIM)} → {after}"


def _more(change: Mapping[str, Any]) -> str:
    if change["verb"] == "policy.publish":
        no_effect = "" if change["differences"] else ", which changes nothing in force"
        revision = shaped(change, {"revision": int})["revision"]
        return f" (revision {revision} → {revision + 1}{no_effect})"
    if change["verb"] == "organisation.delete":
        count = shaped(change, {"before": {NAMESPACES: int}})["before"][NAMESPACES]
        return f" and its {count} {'namespace' if count == 1 else 'namespaces'}"
    if change["verb"] in ("organisation.create", "namespace.create"):
        owner = (shaped(change.get("after"), (dict, type(None))) or {}).get("owner")
        return f" (owner {cell(owner)})" if owner else ""
    return ""
