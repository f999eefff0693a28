"""Decide which agents a rollout reaches at which step, and what it does next. Pure: reads nothing, writes nothing."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Literal

from controlplane.rollouts.guards import Finding
from controlplane.rollouts.spec import EVERYBODY, LabelStep, Step
from engine_agent.contracts.words import listed

NAMED_AT_MOST = 5
Integrity = Literal["not asked", "running", "passed", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent that the level concerns."""

    agent: str
    kind: str  # engines change in steps; gateways, which keep no cache, have the newest at once
    labels: Mapping[str, str]
    group: int = 0  # its gateways send to this agent


def reached_at(
    steps: Sequence[Step], step: int, candidates: Iterable[Candidate], already_reached: Collection[str], *, seed: str
) -> frozenset[str]:
    """Return all agents that get the new revision at that step, including every agent that already has it.

    Shares are of each group's engines, rounded up; at least one engine is left to compare with until the last step.
    `seed` sets the order, so that not always the same engine is first.
    """
    known = list(candidates)
    all_agents = frozenset(candidate.agent for candidate in known)
    target = steps[step]
    if target == EVERYBODY:
        return all_agents
    engines = [candidate for candidate in known if candidate.kind == "engine"]
    reached_agents = frozenset(
        candidate.agent for candidate in known if candidate.kind != "engine" or candidate.agent in already_reached
    )
    if isinstance(target, LabelStep):
        return reached_agents | {engine.agent for engine in engines if has_labels(engine, target.labels)}
    return reached_agents.union(*(_chosen(target, pool, reached_agents, seed) for pool in _pools(engines)))


def _pools(engines: Iterable[Candidate]) -> list[list[str]]:
    """Return the sets of engines of which a share is taken: each group's.

    The only engine of a group would get all its requests, so it waits for the last step. If no group has more than one,
    all engines form one set, and are compared with each other.
    """
    groups = defaultdict[int, list[str]](list)
    for engine in engines:
        groups[engine.group].append(engine.agent)
    pools = list(groups.values())
    return [pool for pool in pools if len(pool) > 1] or [[agent for pool in pools for agent in pool]]


def _chosen(share: int, pool: Iterable[str], reached_agents: Collection[str], seed: str) -> list[str]:
    order = sorted(pool, key=lambda agent: (agent not in reached_agents, _place(seed, agent)))
    return order[: _how_many(share, len(order))]


def has_labels(candidate: Candidate, labels: Mapping[str, str]) -> bool:
    return all(candidate.labels.get(name) == value for name, value in labels.items())


def _how_many(share: int, engines: int) -> int:
    return min(max(1, -(-engines * share // EVERYBODY)), max(1, engines - 1))


def _place(seed: str, agent: str) -> bytes:
    return sha256(f"{seed}\0{agent}".encode()).digest()


def traffic_share(steps: Sequence[Step], step: int, reached: int, engines: int) -> float:
    """Return which share of a namespace's requests the reached engines get.

    It is the share that the step names, else their share of all engines.
    """
    target = steps[step]
    if isinstance(target, int):
        return target / EVERYBODY
    return reached / engines if engines else 0.0


# What to do next


@dataclass(frozen=True, slots=True)
class Awaited:
    """An agent that has not acknowledged yet. Only operators, who run the agents, may read `why`."""

    agent: str
    why: str = ""
    rejected: str = ""  # why it cannot apply its desired state, if it reported that


@dataclass(frozen=True, slots=True)
class RolloutView:
    """An open rollout with the reports of its agents."""

    is_paused: bool
    strategy: str
    steps: Sequence[Step]
    step: int
    reached: frozenset[str]
    bake_seconds: int
    baking_since: datetime | None
    seed: str
    candidates: Sequence[Candidate]
    awaited: Sequence[Awaited] = ()  # agents that have not acknowledged this step
    unheld: Sequence[Awaited] = ()  # reached engines without the revision, whatever they once acknowledged
    rejected: Sequence[Awaited] = ()  # agents that cannot apply the revision, and why
    silent: Sequence[Awaited] = ()  # reached engines that are stale or down
    findings: Sequence[Finding] = ()
    checks_integrity: bool = False
    integrity: Integrity = "not asked"
    integrity_words: str = ""
    integrity_details: str = ""  # the engines' reports, for operators

    @property
    def is_last_step(self) -> bool:
        return self.step >= len(self.steps) - 1

    @property
    def engines_reached(self) -> list[str]:
        """Return the reached engines that still exist."""
        return [
            candidate.agent
            for candidate in self.candidates
            if candidate.kind == "engine" and candidate.agent in self.reached
        ]


@dataclass(frozen=True, slots=True)
class Wait:
    why: str
    details: str = ""  # the same in full, for operators; empty if `why` is all


@dataclass(frozen=True, slots=True)
class Reach:
    """Go to that step: all these agents get the new revision."""

    step: int
    agents: frozenset[str]


@dataclass(frozen=True, slots=True)
class Bake:
    """All reached agents have applied the revision: watch them from now on."""


@dataclass(frozen=True, slots=True)
class CheckIntegrity:
    """Ask the reached engines to check themselves."""


@dataclass(frozen=True, slots=True)
class Pause:
    why: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class GoBack:
    why: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """All agents have the revision."""


Decision = Wait | Reach | Bake | CheckIntegrity | Pause | GoBack | Finish


def decide(view: RolloutView, *, now: datetime) -> Decision:
    """Return the next action. A rollback comes first, even while paused; advancing needs every condition to be met."""
    if view.strategy == "canary" and (rollback := _harm(view)):
        return rollback
    if view.is_paused:
        return Wait("")
    if view.is_last_step:
        return _last_step(view)
    if view.awaited:
        return _waiting(view.awaited)
    if view.baking_since is None:
        return _waiting(view.unheld) if view.unheld else Bake()
    until = view.baking_since + timedelta(seconds=view.bake_seconds)
    if now < until:
        return Wait(f"Step {view.step + 1} of {len(view.steps)} bakes for {view.bake_seconds} s.")
    return _baked(view)


def _harm(view: RolloutView) -> GoBack | None:
    """Return the rollback that something requires at once, or None."""
    if view.rejected:
        return GoBack(*_of_agents("Rejected by {}.", view.rejected))
    breached = [finding.words for finding in view.findings if finding.verdict == "breached"]
    if breached:
        return GoBack(f"Worse than the agents not yet changed: {'; '.join(breached)}.")
    if view.integrity == "failed":
        template = "An integrity check failed: {}."
        return GoBack(template.format(view.integrity_words), template.format(view.integrity_details))
    return None


def _last_step(view: RolloutView) -> Decision:
    """Finish once the awaited agents have acknowledged.

    An agent that enrolled since has the revision from the start, and owes no acknowledgement.
    """
    return _waiting(view.awaited) if view.awaited else Finish()


def _baked(view: RolloutView) -> Decision:
    """Return the action at the end of a bake. Advancing requires evidence."""
    if view.silent:
        return Pause(*_of_agents("No fresh news of {} at the end of the bake.", view.silent))
    if view.unheld:
        return _waiting(view.unheld)
    insufficient = [f"{finding.guard}: {finding.words}" for finding in view.findings if finding.verdict == "too little"]
    if insufficient:
        return Pause(f"Too little evidence at the end of the bake: {'; '.join(insufficient)}.")
    if view.checks_integrity and view.integrity == "not asked":
        return CheckIntegrity() if view.engines_reached else Pause("No engine that is reached is left to check itself.")
    if view.checks_integrity and view.integrity == "running":
        return Wait("The reached engines check themselves.")
    if view.checks_integrity and view.integrity == "unknown":
        return Pause(f"The integrity check was not answered: {view.integrity_words}.")
    return next_step(view)


def next_step(view: RolloutView) -> Reach | Finish:
    """Return the next step, whether or not to take it."""
    if view.is_last_step:
        return Finish()
    step = view.step + 1
    return Reach(step, reached_at(view.steps, step, view.candidates, view.reached, seed=view.seed))


def _waiting(awaited: Sequence[Awaited]) -> Wait:
    return Wait(*_of_agents("Waiting for {}.", awaited))


def _of_agents(template: str, agents: Sequence[Awaited]) -> tuple[str, str]:
    """Return the text with the agents' names, and in full for operators.

    A reason may name what another organisation has there.
    """
    names = [awaited_agent.agent for awaited_agent in agents]
    names_with_reasons = [
        f"{awaited_agent.agent} ({awaited_agent.why})" if awaited_agent.why else awaited_agent.agent
        for awaited_agent in agents
    ]
    details = template.format(listed(names_with_reasons, NAMED_AT_MOST)) if names_with_reasons != names else ""
    return template.format(listed(names, NAMED_AT_MOST)), details
