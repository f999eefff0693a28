"""Argument types for numbers and times: each is finite and within a sensible range."""

import math
import re
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta

MOST = 2**31 - 1
LONGEST_WAIT_SECONDS = 7 * 24 * 3600.0
LONGEST_EXPIRY = timedelta(days=36_500)
UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SPAN = re.compile(r"([0-9]+)([mhdw])")


def revision(text: str) -> int:
    return _whole(text, least=0)


def count(text: str) -> int:
    return _whole(text, least=1)


def seconds(text: str) -> float:
    parsed = _finite(text, LONGEST_WAIT_SECONDS)
    if not parsed:
        raise ValueError(f"{text[:40]!r} is no time of up to {LONGEST_WAIT_SECONDS:g} seconds")
    return parsed


def number(text: str) -> float:
    if (parsed := _finite(text, MOST)) is None:
        raise ValueError(f"{text[:40]!r} is no number from 0 to {MOST}")
    return parsed


def share(text: str) -> float:
    if (parsed := _finite(text, 1)) is None:
        raise ValueError(f"{text[:40]!r} is no share from 0 to 1")
    return parsed


def expiry(text: str) -> str:
    """Return the time that `30d` from now means, or a time as it was typed: the control plane checks it."""
    if _SPAN.fullmatch(text) is None:
        return text
    until = datetime.now(UTC) + timedelta(seconds=span(text))
    return until.isoformat(timespec="seconds").replace("+00:00", "Z")


def day(text: str) -> str:
    """Return a calendar day, in UTC."""
    try:
        return date.fromisoformat(text if _DAY.fullmatch(text) else "").isoformat()
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no day such as 2026-11-22") from None


def month(text: str) -> tuple[str, str]:
    """Return the first and last day of a month such as `2026-11`."""
    try:
        first = day(f"{text}-01")
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no month such as 2026-11") from None
    year, number = int(first[:4]), int(first[5:7])
    return first, date(year, number, monthrange(year, number)[1]).isoformat()


def span(text: str) -> int:
    """Return the seconds of a span such as `30m`."""
    match = _SPAN.fullmatch(text)
    if match is None or len(match[1]) > 12 or not 1 <= int(match[1]) <= LONGEST_EXPIRY // UNITS[match[2]]:
        raise ValueError(f"{text[:40]!r} is no time such as 30m, 12h or 7d, of up to 100 years")
    return int((int(match[1]) * UNITS[match[2]]).total_seconds())


def ttl(text: str) -> int:
    """Return the seconds of a span such as `1h`, or of a plain number of seconds."""
    return _whole(text, least=1) if text.isascii() and text.isdecimal() else span(text)


def _whole(text: str, *, least: int) -> int:
    """Return the whole number. Stricter than `int`, which accepts 1_0 and the digits of other scripts."""
    if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= MOST:
        raise ValueError(f"{text[:40]!r} is no whole number from {least} to {MOST}")
    return int(text)


def _finite(text: str, most: float) -> float | None:
    """Return the number if it is from 0 to `most`, else None, also for text that is not a number."""
    try:
        parsed = float(text)
    except ValueError:
        return None
    return parsed if 0 <= parsed <= most and math.isfinite(parsed) else None
