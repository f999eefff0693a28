"""Answers as tables: the rows of their CSV, the same in every interface. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

COUNTS: Final = ("requests", "prompt_tokens", "cached_tokens", "generated_tokens", "hit_ratio")
OF_STATS: Final = ("of", "name", "from", "to", *COUNTS, "resident_bytes")
OF_SERIES: Final = ("at", *COUNTS)
Row = Sequence[Any]


def stats_rows(found: Mapping[str, Any]) -> list[Row]:
    """Return the counts of the total, each namespace or organisation, model and key, and the window before.

    Only JSON has the rest.
    """
    by = "organisation" if "by_organisation" in found else "namespace"
    return [
        _row(found, "total", None, found),
        *(_row(found, by, one[by], one) for one in found[f"by_{by}"]),
        *(_row(found, "model", one["model"], one) for one in found["by_model"]),
        *(_row(found, "key", key_name(one), one) for one in found.get("by_key", ())),
        _row(found["before"], "before", None, found["before"]),
    ]


def key_name(part: Mapping[str, Any]) -> str | None:
    """Return the name of a `by_key` row; None without a key. Names may be equal, so it includes the key's prefix."""
    if part["id"] is None:
        return None
    return f"key {part['id']}" if part["name"] is None else f"{part['name']} ({part['prefix']}…)"


def series_rows(found: Mapping[str, Any]) -> Iterable[Row]:
    return ([point["at"].isoformat(), *(point[one] for one in COUNTS)] for point in found["points"])


def _row(window: Mapping[str, Any], of: str, name: str | None, counts: Mapping[str, Any]) -> Row:
    times = (window[end].isoformat() for end in ("from", "to"))
    return [of, name, *times, *(counts[one] for one in COUNTS), counts.get("resident_bytes")]
