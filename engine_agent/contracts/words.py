"""Format lists for messages of both sides. No I/O."""

from collections.abc import Sequence


def listed(names: Sequence[str], most: int, separator: str = ", ", *, total: int | None = None) -> str:
    """Return the first names, and how many more there are. Set `total` if not all of them have a name."""
    shown = names[:most]
    more = (len(names) if total is None else total) - len(shown)
    return f"{separator.join(shown)} and {more:,} more" if more else separator.join(shown)
