"""Argument types of `luminet calc`. The calculator itself checks how they fit together."""

import re

SIZES = {"": 1, "B": 1} | {
    unit: base**power
    for power, letter in enumerate("KMGTP", start=1)
    for unit, base in ((f"{letter}B", 1000), (f"{letter}iB", 1024))
}
COUNTS = {"": 1, "M": 10**6, "B": 10**9, "T": 10**12}
_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)")


def names_read(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def whole_read(text: str) -> int:
    """Return a whole number. The calculator checks its range, so that there is only one limit."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError(f"{text[:40]!r} is no whole number of up to 18 digits")
    return int(text)


def size_read(text: str) -> int:
    """Return the bytes: `24GB` is 24 · 10^9, `24GiB` is 24 · 2^30."""
    return _read(text, SIZES, "size such as 24GB or 1.5GiB")


def number_read(text: str) -> int:
    """Return the number: `8.03B` is 8.03 billion."""
    return _read(text, COUNTS, "number such as 8.03B")


def share_read(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", text):
        raise ValueError(f"{text[:40]!r} is no share such as 0.92")
    return float(text)


def _read(text: str, units: dict[str, int], noun: str) -> int:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise ValueError(f"{text[:40]!r} is no {noun}")
    before, _, after = match[1].partition(".")
    exact: int = int(before + after) * units[match[2]] // 10 ** len(after)
    return exact
