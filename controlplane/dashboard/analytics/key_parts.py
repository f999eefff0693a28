"""The use of each API key as a part of the total. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from controlplane.dashboard.frame.words import counted

NO_KEY: Final = "No key is known"
HOW: Final = (
    "A request counts for the key it came with, as its gateway found it. No key is known of what came without one, or "
    "through a gateway or an engine of a version before keys were told. All rows are together the numbers above."
)


def parts(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of `by_key` as facts.rows_of takes them; requests without a known key come last."""
    return [{**one, "key": _name(one), "is_deleted": one["id"] is None, "note": _note(one)} for one in found]


def title(found: Sequence[Mapping[str, Any]], *, nothing: str) -> str:
    """Return a title that names the key with most tokens."""
    named, total = [one for one in found if one["id"]], sum(one["prompt_tokens"] for one in found)
    if not total:
        return nothing
    if not named:
        return "Of no request a key is known"
    most = max(named, key=lambda one: one["prompt_tokens"])
    if len(found) == 1:
        return f"All prompt tokens came with {_name(most)}"
    share = 100 * most["prompt_tokens"] // total
    return f"{share} % of the prompt tokens came with {_name(most)}, of {counted(len(named), 'key')} that asked"


def _name(one: Mapping[str, Any]) -> str:
    if one["id"] is None:
        return NO_KEY
    return one["name"] or "a key that is gone altogether"


def _note(one: Mapping[str, Any]) -> str:
    known = [f"{one['prefix']}…"] if one["prefix"] else []
    return ", ".join([*known, *(["revoked"] if one["is_revoked"] else [])])
