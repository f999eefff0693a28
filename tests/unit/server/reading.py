"""What a journal and a page of metrics say, for tests to compare."""

from typing import Any

from engine_agent.journal.journal import Journal


def records(journal: Journal) -> list[Any]:
    if not journal.boots():
        return []
    return [entry.record for entry in journal.since("boot-1", 0, 1_000).entries]


def counters(text: str) -> dict[str, float]:
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}
