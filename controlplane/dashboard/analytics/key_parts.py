"""The use of each API key as a part of the total. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from controlplane.dashboard.frame.words import counted

NO_KEY: Final = "No key is known"
HOW: Final = (
    "A request counts for the key it came with, as its gateway found it. No key is known of what came without one, or "
    "through a gateway or an engine of a version before keys were told. All rows are together the numbers above."
)


def parts(key_stats: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of `by_key` as facts.rows_of takes them; requests without a known key come last."""
    return [
        {**key_row, "key": _name(key_row), "is_deleted": key_row["id"] is None, "note": _note(key_row)}
        for key_row in key_stats
    ]


def title(key_stats: Sequence[Mapping[str, Any]], *, nothing: str) -> str:
    """Return a title that names the key with most tokens."""
    named_keys, total = (
        [key_row for key_row in key_stats if key_row["id"]],
        sum(key_row["prompt_tokens"] for key_row in key_stats),
    )
    if not total:
        return nothing
    if not named_keys:
        return "Of no request a key is known"
    top_key = max(named_keys, key=lambda key_row: key_row["prompt_tokens"])
    if len(key_stats) == 1:
        return f"All prompt tokens came with {_name(top_key)}"
    share = 100 * top_key["prompt_tokens"] // total
    return f"{share} % of the prompt tokens came with {_name(top_key)}, of {counted(len(named_keys), 'key')} that asked"


def _name(key_row: Mapping[str, Any]) -> str:
    if key_row["id"] is None:
        return NO_KEY
    return key_row["name"] or "a key that is gone altogether"


def _note(key_row: Mapping[str, Any]) -> str:
    notes = [f"{key_row['prefix']}…"] if key_row["prefix"] else []
    return ", ".join([*notes, *(["revoked"] if key_row["is_revoked"] else [])])
