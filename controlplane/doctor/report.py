"""The report for people and for programs, and the exit status."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from controlplane.client.tables import BOLD, DIM, GREEN, RED, YELLOW, Paper
from controlplane.doctor.finding import Finding, Status, counted

Found = tuple[str, Finding]  # with its area
# Its word and colour in a line, then singular and plural in the summary, which has this order.
WORDS: Mapping[Status, tuple[str, int | None, str, str]] = {
    Status.BROKEN: ("broken", RED, "broken", "broken"),
    Status.WARNING: ("warning", YELLOW, "warning", "warnings"),
    Status.OK: ("ok", GREEN, "well", "well"),
    Status.NOTE: ("note", None, "note", "notes"),
    Status.NOT_EXAMINED: ("not examined", DIM, "not examined", "not examined"),
}
WIDTH = max(len(word) for word, *_ in WORDS.values())
MOST_REASONS = 3


def exit_status(found: Iterable[Found]) -> int:
    """Return 1 if something is broken. Warnings alone give 0: they are about the future and block no deployment."""
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
    word, colour, *_ = WORDS[one.status]
    shown = word.ljust(WIDTH)
    first = f"  {shown if colour is None else paper.paint(shown, colour)}  {one.says}"
    return [first] if one.do is None else [first, f"  {' ' * WIDTH}  → {one.do}"]


def summary(findings: Iterable[Finding]) -> str:
    found = list(findings)
    counts = Counter(finding.status for finding in found)
    text = ", ".join(counted(counts[status], *words) for status, (_, _, *words) in WORDS.items() if counts[status])
    reasons = list(dict.fromkeys(finding.why for finding in found if finding.why))
    if not reasons:
        return f"{text or 'Nothing was examined'}."
    more = "; and more" if len(reasons) > MOST_REASONS else ""
    return f"{text}: {'; '.join(reasons[:MOST_REASONS])}{more}."
