"""Answers as tables: the rows of their CSV, the same in every interface. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

COUNTS: Final = ("requests", "prompt_tokens", "cached_tokens", "generated_tokens", "hit_ratio")
OF_STATS: Final = ("of", "name", "from", "to", *COUNTS, "resident_bytes")
OF_SERIES: Final = ("at", *COUNTS)
Row = Sequence[Any]


def stats_rows(stats: Mapping[str, Any]) -> list[Row]:
    """Return the counts of the total, each namespace or organisation, model and key, and the window before.

    Only JSON has the rest.
    """
    by = "organisation" if "by_organisation" in stats else "namespace"
    return [
        _row(stats, "total", None, stats),
        *(_row(stats, by, part[by], part) for part in stats[f"by_{by}"]),
        *(_row(stats, "model", part["model"], part) for part in stats["by_model"]),
        *(_row(stats, "key", key_name(part), part) for part in stats.get("by_key", ())),
        _row(stats["before"], "before", None, stats["before"]),
    ]


def key_name(part: Mapping[str, Any]) -> str | None:
    """Return the name of a `by_key` row; None without a key. Names may be equal, so it includes the key's prefix."""
    if part["id"] is None:
        return None
    return f"key {part['id']}" if part["name"] is None else f"{part['name']} ({part['prefix']}…)"


def series_rows(series: Mapping[str, Any]) -> Iterable[Row]:
    return ([point["at"].isoformat(), *(point[column] for column in COUNTS)] for point in series["points"])


def _row(window: Mapping[str, Any], kind: str, name: str | None, counts: Mapping[str, Any]) -> Row:
    times = (window[end].isoformat() for end in ("from", "to"))
    return [kind, name, *times, *(counts[column] for column in COUNTS), counts.get("resident_bytes")]
