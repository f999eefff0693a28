"""Guesses from its form what kind of text differs between prompts: a date, an id, a number."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TIME = r"\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d{1,9})?(?: ?[AaPp]\.?[Mm]\b\.?)?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_DATE = (
    rf"(?:\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}"
    rf"|\d{{1,2}}\.? {_MONTH}\.?,? \d{{4}}|{_MONTH}\.? \d{{1,2}},? \d{{4}})"
)
_FORMS = (
    ("a uuid", r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"),
    ("a timestamp", rf"{_DATE}(?:[T ,]| at )+{_TIME}(?:Z| ?[+-]\d{{2}}:?\d{{2}}| UTC| GMT)?"),
    ("a date", _DATE),
    ("a time of day", _TIME),
    ("an address of the internet", r"(?:\d{1,3}\.){3}\d{1,3}"),
    ("an e-mail address", r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"),
    ("unix time", r"1[5-9]\d{8}(?:\d{3})?"),
    ("an id", r"(?=[A-Za-z_-]{0,40}\d)(?=[\d_-]{0,40}[A-Za-z])[A-Za-z0-9_-]{12,128}"),
    ("a number", r"\d+(?:[.,]\d+)*"),
)
_PATTERN = re.compile(
    "|".join(rf"(?P<form{number}>(?<![A-Za-z0-9]){form}(?![A-Za-z0-9]))" for number, (_, form) in enumerate(_FORMS)),
    re.ASCII,
)
NUMBER = "a number"


@dataclass(frozen=True, slots=True)
class Look:
    name: str
    start: int
    stop: int


def looks(text: str) -> Iterator[Look]:
    """Yield everything in a text that has such a form, from the beginning on."""
    for match in _PATTERN.finditer(text):
        name, _ = _FORMS[int((match.lastgroup or "form0").removeprefix("form"))]
        yield Look(name, *match.span())


def look_at(text: str, start: int, stop: int, *, around: int = 120) -> Look | None:
    """Return the whole value at this place: if only the seconds of a time differ, the time."""
    low, high = max(0, start - around), stop + around
    candidates = (Look(look.name, look.start + low, look.stop + low) for look in looks(text[low:high]))
    touching = [look for look in candidates if look.start < max(stop, start + 1) and look.stop > start]
    specific = [look for look in touching if look.name != NUMBER] or touching
    if not specific:
        return None
    names = list(dict.fromkeys(look.name for look in specific))[:3]
    return Look(" and ".join(names), min(start, specific[0].start), max(stop, specific[-1].stop))
