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


def exit_status(findings: Iterable[Found]) -> int:
    """Return 1 if something is broken. Warnings alone give 0: they are about the future and block no deployment."""
    return 1 if any(finding.status is Status.BROKEN for _, finding in findings) else 0


def as_json(findings: Iterable[Found]) -> list[dict[str, Any]]:
    return [
        {"area": area, "name": finding.name, "status": finding.status.value, "says": finding.says, "do": finding.do}
        for area, finding in findings
    ]


def as_text(paper: Paper, headline: str, titles: Mapping[str, str], findings: Sequence[Found]) -> None:
    paper.say(headline)
    for area, area_findings in groupby(findings, key=lambda pair: pair[0]):
        paper.say("", paper.paint(titles[area], BOLD))
        for _, finding in area_findings:
            paper.say(*lines_of(paper, finding))
    paper.say("", summary(finding for _, finding in findings))


def lines_of(paper: Paper, finding: Finding) -> list[str]:
    word, colour, *_ = WORDS[finding.status]
    label = word.ljust(WIDTH)
    first = f"  {label if colour is None else paper.paint(label, colour)}  {finding.says}"
    return [first] if finding.do is None else [first, f"  {' ' * WIDTH}  → {finding.do}"]


def summary(findings: Iterable[Finding]) -> str:
    all_findings = list(findings)
    counts = Counter(finding.status for finding in all_findings)
    text = ", ".join(counted(counts[status], *words) for status, (_, _, *words) in WORDS.items() if counts[status])
    reasons = list(dict.fromkeys(finding.why for finding in all_findings if finding.why))
    if not reasons:
        return f"{text or 'Nothing was examined'}."
    suffix = "; and more" if len(reasons) > MOST_REASONS else ""
    return f"{text}: {'; '.join(reasons[:MOST_REASONS])}{suffix}."
