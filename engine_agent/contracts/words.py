"""How lists read in messages of both sides. Pure."""

from collections.abc import Sequence


def listed(names: Sequence[str], most: int, separator: str = ", ", *, total: int | None = None) -> str:
    """Return the first names, and how many more there are. `total`: where not all of them have a name."""
    shown = names[:most]
    more = (len(names) if total is None else total) - len(shown)
    return f"{separator.join(shown)} and {more:,} more" if more else separator.join(shown)
