"""What was found, for people and for programs, and the exit status that goes with it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from controlplane.client.tables import DIM, GREEN, RED, YELLOW, Paper
from controlplane.doctor.finding import Finding, Status

Found = tuple[str, Finding]  # with its area
WORDS: Mapping[Status, tuple[str, int | None]] = {
    Status.OK: ("ok", GREEN),
    Status.NOTE: ("note", None),
    Status.WARNING: ("warning", YELLOW),
    Status.BROKEN: ("broken", RED),
    Status.NOT_EXAMINED: ("not examined", DIM),
}
WIDTH = max(len(word) for word, _ in WORDS.values())
COUNTED = (  # in the summary, in this order
    (Status.BROKEN, "broken", "broken"),
    (Status.WARNING, "warning", "warnings"),
    (Status.OK, "well", "well"),
    (Status.NOTE, "note", "notes"),
    (Status.NOT_EXAMINED, "not examined", "not examined"),
)
MOST_REASONS = 3
BOLD = 1


def exit_status(found: Iterable[Found]) -> int:
    """Warnings alone are 0: they say what may become broken, and a deployment that waits for this goes on."""
    return 1 if any(one.status is Status.BROKEN for _, one in found) else 0


def as_json(found: Iterable[Found]) -> list[dict[str, Any]]:
    return [
        {"area": area, "name": one.name, "status": one.status.value, "says": one.says, "do": one.do}
        for area, one in found
    ]


def as_text(paper: Paper, where: str, titles: Mapping[str, str], found: Sequence[Found]) -> None:
    paper.say(where)
    for area, ones in groupby(found, key=lambda one: one[0]):
        paper.say("", paper.paint(titles[area], BOLD))
        for _, one in ones:
            paper.say(*lines_of(paper, one))
    paper.say("", summary(one for _, one in found))


def lines_of(paper: Paper, one: Finding) -> list[str]:
    word, colour = WORDS[one.status]
    shown = word.ljust(WIDTH)
    first = f"  {shown if colour is None else paper.paint(shown, colour)}  {one.says}"
    return [first] if one.do is None else [first, f"  {' ' * WIDTH}  → {one.do}"]


def summary(findings: Iterable[Finding]) -> str:
    ones = list(findings)
    counted = [(sum(one.status is status for one in ones), first, more) for status, first, more in COUNTED]
    told = ", ".join(f"{count} {first if count == 1 else more}" for count, first, more in counted if count)
    reasons = list(dict.fromkeys(one.why for one in ones if one.why))
    if not reasons:
        return f"{told or 'Nothing was examined'}."
    more = "; and more" if len(reasons) > MOST_REASONS else ""
    return f"{told}: {'; '.join(reasons[:MOST_REASONS])}{more}."
