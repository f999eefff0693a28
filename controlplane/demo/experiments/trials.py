"""The steps that an experiment reports, and how its page shows them. Pure; everything survives JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from controlplane.dashboard.experiments.asking import Answer
from controlplane.dashboard.experiments.sent import Sent, sent_rows

Tone = Literal["ok", "warn", "bad"]
SILENT_SECONDS: Final = 150  # longer than any step: after this silence its process has ended
DIED: Final = "It was cut off: its process ended. Start it again; what it may have left is undone first."


class NotPossible(Exception):
    """The experiment cannot run here. The message says why, and the page shows it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run. `answers`: answered requests, each with its label. `facts`: label, value, basis."""

    words: str
    answers: Sequence[tuple[str, Answer]] = ()
    facts: Sequence[tuple[str, str, str]] = ()
    facts_title: str = ""
    verdict: str = ""
    tone: Tone = "ok"


@dataclass(slots=True)
class Told:
    """All that a run has reported so far, as stored in Redis."""

    id: str
    kind: str
    began: float
    at: float
    steps: list[tuple[int, str]] = field(default_factory=list)  # milliseconds since the start
    answers: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    facts: list[tuple[str, str, str]] = field(default_factory=list)
    facts_title: str = ""
    verdict: str = ""
    tone: str = "ok"
    is_over: bool = False
    problem: str = ""

    def add(self, step: Step, *, now: float) -> None:
        self.at = now
        self.steps.append((round((now - self.began) * 1000), step.words))
        self.answers += [(label, asdict(answer)) for label, answer in step.answers]
        self.facts += step.facts
        self.facts_title = step.facts_title or self.facts_title
        if step.verdict:
            self.verdict, self.tone = step.verdict, step.tone

    def end(self, problem: str, *, now: float) -> None:
        self.at, self.is_over, self.problem = now, True, problem

    def stored(self) -> dict[str, Any]:
        return asdict(self)


def told_read(stored: Mapping[str, Any]) -> Told:
    return Told(**stored)


@dataclass(frozen=True, slots=True)
class About:
    """The description of an experiment before it runs. `slow`: about how long it takes, as text."""

    kind: str
    title: str
    words: str
    undone: str
    slow: str


@dataclass(frozen=True, slots=True)
class Fact:
    label: str
    value: str
    basis: str


@dataclass(frozen=True, slots=True)
class Trial:
    about: About
    title: str
    state: str
    tone: str
    steps: tuple[tuple[str, str], ...]
    rows: tuple[Sent, ...]
    facts: tuple[Fact, ...]
    facts_title: str
    problem: str
    is_running: bool
    seen: str  # the state that the page shows; a poll with the same state gets 204
    ended_at: datetime | None


def trial(about: About, experiment_log: Told | None, *, now: float) -> Trial:
    if experiment_log is None:
        return Trial(about, about.title, "not run yet", "info", (), (), (), "", "", False, "", None)
    is_dead = not experiment_log.is_over and now - experiment_log.at > SILENT_SECONDS
    problem = experiment_log.problem or (DIED if is_dead else "")
    is_running = not experiment_log.is_over and not is_dead
    state, tone = ("running", "info") if is_running else _ended(experiment_log, problem)
    return Trial(
        about=about,
        title=experiment_log.verdict or about.title,
        state=state,
        tone=tone,
        steps=tuple((f"{ms / 1000:,.2f} s", words) for ms, words in experiment_log.steps),
        rows=sent_rows([(label, _answer(answer)) for label, answer in experiment_log.answers]),
        facts=tuple(Fact(*fields) for fields in experiment_log.facts),
        facts_title=experiment_log.facts_title,
        problem=problem,
        is_running=is_running,
        seen=f"{experiment_log.id}.{len(experiment_log.steps)}.{state}",
        ended_at=None if is_running else datetime.fromtimestamp(experiment_log.at).astimezone(),
    )


def headline(trials: Sequence[Trial]) -> str:
    running = sum(trial.is_running for trial in trials)
    if running:
        return f"{running} of {len(trials)} experiments {'runs' if running == 1 else 'run'} on this fleet now"
    shown_count = sum(trial.state == "shown" for trial in trials)
    if shown_count:
        return f"{shown_count} of {len(trials)} experiments have shown it on this very fleet"
    return f"{len(trials)} experiments show it on this very fleet"


def _ended(experiment_log: Told, problem: str) -> tuple[str, str]:
    if problem:
        return "did not come through", "bad"
    return ("shown", "ok") if experiment_log.tone == "ok" else ("not shown", "warn")


def _answer(stored: Mapping[str, Any]) -> Answer:
    return Answer(**{**stored, "headers": tuple((name, value) for name, value in stored["headers"])})
