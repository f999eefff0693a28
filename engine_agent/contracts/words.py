"""How lists read in messages of both sides. Pure."""

from collections.abc import Sequence


def listed(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first of them by name, and how many there are besides."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{separator.join(names[:most])}{more}"
