"""The results of this gateway's rounds: for each engine the unreported counts and the latest times."""

from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine_agent.gateway.canary.judging import OUTCOMES, Outcome, Verdict
from engine_agent.gateway.canary.statistic import WATCHING_Z, Interval, interval_of

MOST_PAIRS = 1_000  # older pairs say nothing about the present
LEAST_PAIRS = 30
MOST_WHY = 300


@dataclass(slots=True)
class Finding:
    untold: Counter[Outcome] = field(default_factory=Counter)
    total: Counter[Outcome] = field(default_factory=Counter)
    pairs: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MOST_PAIRS))
    failure: tuple[float, str] | None = None  # the latest: its time and reason
    interval: Interval | None = None

    def add(self, verdict: Verdict, at: float) -> None:
        self.untold[verdict.outcome] += 1
        self.total[verdict.outcome] += 1
        if verdict.why:
            self.failure = (at, verdict.why[:MOST_WHY])
        if verdict.pair is not None:
            self.pairs.append(verdict.pair)
            if len(self.pairs) >= LEAST_PAIRS:
                self.interval = interval_of(*zip(*self.pairs, strict=True), z=WATCHING_Z)

    def document(self) -> dict[str, Any]:
        failure, timing = self.failure, self.interval
        return {
            "rounds": {name: self.untold[name] for name in OUTCOMES},
            "failure": None if failure is None else {"at": failure[0], "why": failure[1]},
            "timing": timing and {"pairs": len(self.pairs), "auc": timing.auc, "low": timing.low, "high": timing.high},
        }


class Findings:
    def __init__(self) -> None:
        self._of: dict[str, Finding] = {}

    def add(self, agent: str, verdict: Verdict, at: float) -> None:
        self._of.setdefault(agent, Finding()).add(verdict, at)

    def keep(self, agents: Collection[str]) -> None:
        """Forget engines that have left the fleet and have nothing left to report."""
        self._of = {agent: finding for agent, finding in self._of.items() if agent in agents or finding.untold}

    def all(self) -> Mapping[str, Finding]:
        return self._of

    def take(self) -> dict[str, dict[str, Any]]:
        """Return the unreported findings, and count them as reported."""
        reports = {agent: finding.document() for agent, finding in self._of.items() if finding.untold}
        for agent in reports:
            self._of[agent].untold.clear()
        return reports
