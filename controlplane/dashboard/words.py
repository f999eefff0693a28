"""How values read on a page: durations, roles, where a value comes from. Pure."""

from collections.abc import Iterator
from datetime import timedelta

ROLES = {"viewer": "a viewer", "editor": "an editor", "admin": "an admin"}
MAY = {
    "viewer": "read numbers and policies",
    "editor": "read everything, and change policies within the bounds your operator sets",
    "admin": "change policies within the bounds your operator sets, and manage keys and members",
}
ORIGINS = {"fleet": "fleet default", "organisation": "from the organisation", "namespace": "this namespace's own"}
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
DAYS_FROM = 2 * 86_400  # "24 h" is what people say


def duration(seconds: int) -> str:
    """Exactly, in the fewest words: "5 min", "24 h", "7 d", "1 h 30 min"."""
    return " ".join(_units(seconds)) or "0 s"


def _units(seconds: int) -> Iterator[str]:
    for size, name in UNITS if seconds >= DAYS_FROM else UNITS[1:]:
        count, seconds = divmod(seconds, size)
        if count:
            yield f"{count} {name}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def span(lasts: timedelta) -> str:
    """Whole hours or days in words: "24 hours", "7 days"."""
    hours = lasts // timedelta(hours=1)
    return counted(hours, "hour") if hours <= 24 or hours % 24 else counted(hours // 24, "day")
