"""What really happened, seen from above everybody, and the promises it is held against.

None of the parties sees this. What they told one another may be late, doubled or lost; what they did may not be wrong:

- nobody ever obeys an older state than one it has acknowledged, and no engine one older than it holds;
- where a receipt of a purge stands, nothing from before it is cached, and never is again;
- what an engine proved is told once, and stands in a receipt once; no receipt says more than was proved;
- what an operation asked for is done before it says so, and not again after;
- in the end everybody holds the newest state, and every operation has its receipts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fleet_simulation.control_plane import STATE, ControlPlane, StepRow
from tests.fleet_simulation.engine import Engine, Proof


class BrokenPromise(AssertionError):
    """One of the promises above does not hold."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Of a purge, from one agent. `known_epoch`: up to which others of this namespace stood there before it."""

    agent: str
    namespace: str
    epoch: int
    blocks: int
    known_epoch: int
    at: float


@dataclass(slots=True)
class Ledger:
    order: dict[str, int] = field(default_factory=dict)  # states by hash, in the order in which they came to be
    acknowledged: dict[str, int] = field(default_factory=dict)  # by agent: the newest it has ever acknowledged
    floors: dict[tuple[str, str], int] = field(default_factory=dict)  # by agent and namespace: epoch of receipts
    proved: "defaultdict[str, list[Proof]]" = field(default_factory=lambda: defaultdict(list))
    unfetched: "defaultdict[str, set[Proof]]" = field(default_factory=lambda: defaultdict(set))  # died with its engine
    deeds: "Counter[tuple[str, str]]" = field(default_factory=Counter)  # by agent and operation: how often done
    told: set[tuple[str, str]] = field(default_factory=set)  # by agent and operation: its receipt is on disk
    receipts: list[Receipt] = field(default_factory=list)

    def state_wanted(self, hash_: str) -> None:
        self.order.setdefault(hash_, len(self.order))

    def obeyed(self, agent: str, engine: Engine, before: str | None, hash_: str) -> None:
        place = self.order[hash_]
        if before is not None and place < self.order[before]:
            raise BrokenPromise(f"the engine of {agent} went back from state {self.order[before]} to {place}")
        if place < self.acknowledged.get(agent, -1):
            raise BrokenPromise(f"{agent} obeys state {place} and has acknowledged {self.acknowledged[agent]}")
        self._nothing_purged_is_there(agent, engine)

    def acknowledges(self, agent: str, hash_: str) -> None:
        """In its own folder, from which it will be told."""
        place = self.order[hash_]
        if place < self.acknowledged.get(agent, -1):
            raise BrokenPromise(f"{agent} acknowledges state {place} after {self.acknowledged[agent]}")
        self.acknowledged[agent] = place

    def served(self, agent: str, engine: Engine) -> None:
        self._nothing_purged_is_there(agent, engine)

    def ended(self, step: StepRow, engine: Engine | None, now: float) -> None:
        assert step.ended is not None
        if step.deed == STATE:
            place = (step.agent, str(step.namespace))
            before = (one.epoch for one in self.receipts if (one.agent, one.namespace) == place and one.at < now)
            self.receipts.append(Receipt(*place, step.epoch, step.ended.blocks, max(before, default=0), now))
            self.floors[place] = max(self.floors.get(place, 0), step.epoch)
            if engine is not None:
                self._nothing_purged_is_there(step.agent, engine)
        elif step.ended.is_done and not self.deeds[step.agent, step.operation]:
            raise BrokenPromise(f"{step.agent} has a receipt of {step.operation}, which it never did")

    def engine_died(self, agent: str, engine: Engine) -> None:
        """What it had proved and nobody had fetched is gone with its blocks."""
        self.unfetched[agent] |= set(engine.proofs)

    def done(self, agent: str, operation: str) -> None:
        """Once; again only if it died before it could write down that it had."""
        self.deeds[agent, operation] += 1
        if (agent, operation) in self.told:
            raise BrokenPromise(f"{agent} does {operation} again, of which it has told already")

    def tells(self, agent: str, operation: str) -> None:
        self.told.add((agent, operation))

    def _nothing_purged_is_there(self, agent: str, engine: Engine) -> None:
        for namespace, epoch in engine.blocks:
            if epoch < self.floors.get((agent, namespace), 0):
                raise BrokenPromise(f"{agent} caches blocks of {namespace} of epoch {epoch}, purged with a receipt")

    # In the end

    def judge(self, control_plane: ControlPlane, engines: Mapping[str, Engine | None]) -> None:
        newest = list(self.order)[-1]
        for row in control_plane.agents.values():
            engine = engines[row.id]
            held = None if engine is None else engine.held
            if held is None or held.hash != newest:
                raise BrokenPromise(f"the engine of {row.id} does not end at the newest state")
            if (row.applied_hash, row.desired_hash) != (newest, newest):
                raise BrokenPromise(f"{row.id} is not known to hold the newest state")
            if row.applied_generation != row.desired_generation:
                raise BrokenPromise(f"{row.id} ends at {row.applied_generation}, not at {row.desired_generation}")
        for step in control_plane.steps:
            if step.ended is None:
                raise BrokenPromise(f"{step.operation} has no receipt of {step.agent}")
        for agent in control_plane.agents:
            self._proofs_are_told_once(agent, control_plane.told_of(agent))

    def _proofs_are_told_once(self, agent: str, told: Iterable[Mapping[str, Any]]) -> None:
        heard = Counter((one["namespace"], one["epoch"], one["blocks"], one["engine_boot"]) for one in told)
        proved = Counter(_as_told(one) for one in self.proved[agent])
        if invented := heard - proved:
            raise BrokenPromise(f"{agent} told of purges that were not: {dict(invented)}")
        if lost := proved - heard - Counter(_as_told(one) for one in self.unfetched[agent]):
            raise BrokenPromise(f"purges of {agent} were not told: {dict(lost)}")
        for receipt in self.receipts:
            if receipt.agent == agent:
                self._receipt_is_right(receipt, heard)

    def _receipt_is_right(self, receipt: Receipt, heard: "Counter[tuple[str, int, int, str]]") -> None:
        """It has all of its own epoch, and nothing that stood in a receipt before. Purges in a row may be one to an
        engine, and then stand in each of their receipts."""
        of = [(epoch, times * blocks) for (name, epoch, blocks, _), times in heard.items() if name == receipt.namespace]
        least = sum(blocks for epoch, blocks in of if epoch == receipt.epoch)
        most = sum(blocks for epoch, blocks in of if epoch > receipt.known_epoch)
        if not least <= receipt.blocks <= most:
            raise BrokenPromise(f"{receipt} where {least} to {most} were proved")


def _as_told(proof: Proof) -> tuple[str, int, int, str]:
    return proof.namespace, proof.epoch, proof.blocks, proof.boot
