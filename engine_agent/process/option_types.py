"""Option values as people type them, for argparse. Standard library only."""

import argparse
import re
from collections.abc import Callable

LONGEST_SECONDS = 86_400
_SIZE = re.compile(r"(\d{1,12})(?:\.(\d{1,6}))?\s*(|[KMGT]i?B?|B)", re.ASCII | re.IGNORECASE)


def whole_read(minimum: int, maximum: int = 2**31 - 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 11 and minimum <= int(text) <= maximum):
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number from {minimum} to {maximum:,}")
        return int(text)

    return read


def seconds_read(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number of seconds from 0 to {LONGEST_SECONDS:,}")
    return seconds


def size_read(text: str) -> int:
    """Return the bytes of `256MiB`, `1.5GB` or `4096`."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no size like 256MiB, 1.5GB or 4096")
    whole, fraction, unit = match[1], match[2] or "", match[3].lower()
    factor: int = (1024 if "i" in unit else 1000) ** "bkmgt".index(unit[:1] or "b")
    return int(whole) * factor + int(fraction or "0") * factor // int(10 ** len(fraction))


def text_like(pattern: re.Pattern[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not pattern.fullmatch(text):
            raise argparse.ArgumentTypeError(f"{text[:80]!r} has other characters than letters, digits and . _ -")
        return text

    return read
