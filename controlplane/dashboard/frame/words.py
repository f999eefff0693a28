"""Formatting of values on pages: durations, roles, the origin of a value. Pure."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

ROLES = {"viewer": "a viewer", "editor": "an editor", "admin": "an admin"}
MAY = {
    "viewer": "read numbers and policies",
    "editor": "read everything, and change policies within the bounds your operator sets",
    "admin": "change policies within the bounds your operator sets, and manage keys and members",
}
ORIGINS = {"fleet": "fleet default", "organisation": "from the organisation", "namespace": "this namespace's own"}
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
SECONDS_BELOW = 300  # below this, show plain seconds, which are easier to follow
_SECONDS = re.compile(r"\b([0-9]+) s\b")
DAYS_FROM = 2 * 86_400  # below this, show hours: "24 h"


def duration(seconds: int) -> str:
    """Format a duration exactly and in few units: "5 min", "24 h", "7 d", "1 h 30 min"."""
    return " ".join(_units(seconds)) or "0 s"


def _units(seconds: int) -> Iterator[str]:
    for size, name in UNITS if seconds >= DAYS_FROM else UNITS[1:]:
        count, seconds = divmod(seconds, size)
        if count:
            yield f"{count} {name}"


def waiting_text(seconds: float) -> str:
    """Format a waiting time: tenths of seconds below a minute, whole minutes from 10 minutes."""
    if seconds < 60:
        return f"{seconds:,.1f} s"
    return duration(round(seconds) if seconds < 600 else 60 * round(seconds / 60))


def bake_word(baked: int, bake: int) -> str:
    """Format the progress of a bake: "20 of 60 s", "4 min of 1 h"."""
    baked = min(baked, bake)
    if bake < SECONDS_BELOW:
        return f"{baked} of {bake} s"
    return f"{duration(baked // 60 * 60) if baked >= 60 else duration(baked)} of {duration(bake)}"


def lengths_in_words(text: str) -> str:
    """Replace large counts of seconds in a sentence: "bakes for 3600 s" becomes "bakes for 1 h"."""
    return _SECONDS.sub(lambda match: duration(int(match[1])) if int(match[1]) >= SECONDS_BELOW else match[0], text)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def backend_words(agent: Mapping[str, Any]) -> str:
    """Return "vllm 0.32.0"; empty if the agent has not reported it."""
    return " ".join(filter(None, (agent["backend"], agent["backend_version"])))


def pairs_words(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))


def sentence(text: str) -> str:
    """Return the text with a capital first letter and final punctuation."""
    return f"{text[:1].upper()}{ended(text)[1:]}"


def ended(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def span(lasts: timedelta) -> str:
    """Format whole hours or days in words: "24 hours", "7 days"."""
    hours = lasts // timedelta(hours=1)
    return counted(hours, "hour") if hours <= 24 or hours % 24 else counted(hours // 24, "day")


def made_before(subject: str) -> str:
    """Return the error for a form sent twice, as by a reload, after its secret was shown."""
    past = f"{subject} was made with this form already, and its secret was shown then."
    return f"{past} If you do not have it, revoke what was made and send this form again."
