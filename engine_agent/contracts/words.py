"""Format lists for messages of both sides. No I/O."""

from collections.abc import Sequence


def listed(names: Sequence[str], limit: int, separator: str = ", ", *, total: int | None = None) -> str:
    """Return the first names, and how many more there are. Set `total` if not all of them have a name."""
    visible = names[:limit]
    omitted = (len(names) if total is None else total) - len(visible)
    return f"{separator.join(visible)} and {omitted:,} more" if omitted else separator.join(visible)
