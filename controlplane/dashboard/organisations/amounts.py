"""Lengths of time and shares as people type them, read and written. Pure."""

import re
from typing import Final

from controlplane.dashboard.frame.words import UNITS, duration

WORDS: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
NAMES: Final = {
    "": 1,
    "m": 60,
    **{name: size for size, name in UNITS},
    **WORDS,
    **{f"{one}s": WORDS[one] for one in WORDS},
}
_TERM = re.compile(r"([0-9]{1,9})\s*([a-z]*)\s*")
_SHARE = re.compile(r"([0-9]{1,3}(?:[.,][0-9]{1,6})?)\s*%?")
_NUMBER = re.compile(r"[0-9]{1,6}(?:[.,][0-9]{1,6})?")


class Unreadable(ValueError):
    """What was typed is no such amount; the words say what one looks like."""


def seconds_read(text: str) -> int:
    """ "300", "5 min" or "1 h 30 min"."""
    rest, seconds = text.strip().lower(), 0
    while rest:
        found = _TERM.match(rest)
        if found is None or found[2] not in NAMES:
            break
        seconds += int(found[1]) * NAMES[found[2]]
        rest = rest[found.end() :]
    if rest or not text.strip():
        raise Unreadable(f"“{text}” is no length of time: write 300, 5 min or 24 h.")
    return seconds


def share_read(text: str) -> float:
    """A percentage as a share: "12.5 %" is 0.125."""
    found = _SHARE.fullmatch(text.strip())
    if found is None:
        raise Unreadable(f"“{text}” is no percentage: write 12 or 12.5 %.")
    return round(float(found[1].replace(",", ".")) / 100, 9)


def weight_read(text: str) -> float:
    if not _NUMBER.fullmatch(text.strip()):
        raise Unreadable(f"“{text}” is no number: write 1 or 2.5.")
    return float(text.strip().replace(",", "."))


def seconds_text(value: float) -> str:
    return duration(int(value))


def share_text(value: float) -> str:
    return f"{round(value * 100, 7):g} %"


def weight_text(value: float) -> str:
    return f"{value:g}"
