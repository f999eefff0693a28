"""Parts that are wrong in one way each. A simulation that lets one of them pass proves nothing of the right ones."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controlplane.fleet.arrivals import Received
from controlplane.rollouts.assigning import Assignment, PlannedStep
from controlplane.rollouts.plan import StepView
from engine_agent.contracts.wire import Batch, Report
from engine_agent.sidecar import effects as asked
from engine_agent.sidecar import events as said
from engine_agent.sidecar.effects import Effect, Ledger
from engine_agent.sidecar.events import Event
from engine_agent.sidecar.spool import Lines, Spool
from engine_agent.sidecar.state import Sidecar
from tests.fleet_simulation.agent import Agent
from tests.fleet_simulation.control_plane import ControlPlane, StepRow, instant
from tests.fleet_simulation.world import Parts

BROKEN: dict[str, Parts] = {}


def broken(name: str, **part: Any) -> None:
    BROKEN[name] = Parts(**part)


class TakesOlderSnapshots(Sidecar):
    """An answer that was long on its way counts, whatever came meanwhile."""

    def on(self, event: Event, *, now: float, at: float) -> list[Effect]:
        if isinstance(event, said.Pulled) and self.held and event.generation < self.held.generation:
            event = replace(event, generation=self.held.generation + 1)
        return super().on(event, now=now, at=at)


class TellsBeforeItDoes(Sidecar):
    """It acknowledges what it is about to apply."""

    def on(self, event: Event, *, now: float, at: float) -> list[Effect]:
        effects = super().on(event, now=now, at=at)
        for effect in [one for one in effects if isinstance(one, asked.Apply)]:
            told = {"generation": effect.generation, "hash": effect.target, "at": at, "engine_boot": "", "seconds": 0.0}
            effects.append(asked.Tell((Report("applied", told),)))
        return effects


class RepeatsOperations(Sidecar):
    """It does not remember what it has done."""

    def on(self, event: Event, *, now: float, at: float) -> list[Effect]:
        self.ledger = replace(self.ledger, receipts={})
        return super().on(event, now=now, at=at)


class KeepsNoReceipts(Sidecar):
    """It remembers what it has done until it dies."""

    def on(self, event: Event, *, now: float, at: float) -> list[Effect]:
        return [self._forgetful(one) for one in super().on(event, now=now, at=at)]

    def _forgetful(self, effect: Effect) -> Effect:
        return asked.Keep(Ledger()) if isinstance(effect, asked.Keep) else effect


class TellsNoPurges(Sidecar):
    def on(self, event: Event, *, now: float, at: float) -> list[Effect]:
        return [self._silent(one) for one in super().on(event, now=now, at=at)]

    def _silent(self, effect: Effect) -> Effect:
        if not isinstance(effect, asked.Tell):
            return effect
        return replace(effect, reports=tuple(one for one in effect.reports if one.kind != "purged"))


class TellsPurgesAgain(Sidecar):
    """What it has told of purges is not written down beside what it tells."""

    def on(self, event: Event, *, now: float, at: float) -> list[Effect]:
        effects = super().on(event, now=now, at=at)
        return [replace(one, proofs_told=None) if isinstance(one, asked.Tell) else one for one in effects]


class NeverPulls(Sidecar):
    def on(self, event: Event, *, now: float, at: float) -> list[Effect]:
        return [one for one in super().on(event, now=now, at=at) if not isinstance(one, asked.Pull)]


class BringsBackOlder(Sidecar):
    """It takes what it has stored for the newest there is, and its engine's state for a mistake."""

    def on(self, event: Event, *, now: float, at: float) -> list[Effect]:
        self.has_pulled = True
        return super().on(event, now=now, at=at)


class ForgetsTooMuch(Spool):
    """An acknowledgement is taken for all that is there."""

    def acknowledge(self, upto: int) -> None:
        super().acknowledge(2**62)


class ForgetsNothing(Spool):
    def acknowledge(self, upto: int) -> None:
        pass


class IsAlwaysNew(Spool):
    """Another name at each start, for the same reports."""

    def __init__(self, lines: Lines) -> None:
        super().__init__(lines)
        self.id = f"{self.id[:8]}{id(self):x}"


class CountsNothingUp(ControlPlane):
    """Another state under the number of the one before."""

    def _assign(self, one: Assignment) -> None:
        super()._assign(replace(one, generation=max(one.seen, 1)))


class AwaitsNothing(ControlPlane):
    """Any acknowledgement ends a step, also of a state without what the step is about."""

    def _await(self, one: PlannedStep, hash_: str) -> None:
        super()._await(one, hash_)
        step = self._step(one.step_id)
        step.generation = None if step.generation is None else 1


class ComparesNumbersOnly(ControlPlane):
    """A step waits for a generation that another planner has numbered, whatever that holds."""

    def _await(self, one: PlannedStep, hash_: str) -> None:
        super()._await(one, self.agents[one.agent_id].desired_hash)


class TakesReportsTwice(ControlPlane):
    """Which reports are here is not written down beside what they say."""

    def reports(self, agent: str, batch: Batch) -> dict[str, Any] | None:
        self.agents[agent].received = Received()
        return super().reports(agent, batch)


class AcknowledgesUnstored(ControlPlane):
    """It says that it has reports before the transaction that stores them is over."""

    def reports(self, agent: str, batch: Batch) -> dict[str, Any] | None:
        known = super().reports(agent, batch)
        if known is not None:
            return known
        last = batch.first + len(batch.reports) - 1
        answer: dict[str, Any] = {"desired": None, "cadence_seconds": 2.5, "now": self.timeline.now, "watch": []}
        return {**answer, "acknowledged": last}


class AsksOnce(ControlPlane):
    """An operation is asked for once, as if no message were ever lost."""

    def _step_view(self, step: StepRow) -> StepView:
        found = super()._step_view(step)
        return replace(found, retry_at=instant(self.timeline.now + 1)) if step.attempts else found


class StoresNothing(Agent):
    """What the engine holds is acknowledged before it is on the disk, and never comes there."""

    def _apply(self, effect: asked.Apply) -> None:
        before = self.disk.stored
        super()._apply(effect)
        if before is not None:
            self.disk.stored = before


Variant = Callable[..., Any]
for _sidecar in (
    TakesOlderSnapshots,
    TellsBeforeItDoes,
    RepeatsOperations,
    KeepsNoReceipts,
    TellsNoPurges,
    TellsPurgesAgain,
    NeverPulls,
    BringsBackOlder,
):
    broken(_sidecar.__name__, sidecar=_sidecar)
for _spool in (ForgetsTooMuch, ForgetsNothing, IsAlwaysNew):
    broken(_spool.__name__, spool=_spool)
for _control_plane in (
    CountsNothingUp,
    AwaitsNothing,
    ComparesNumbersOnly,
    TakesReportsTwice,
    AcknowledgesUnstored,
    AsksOnce,
):
    broken(_control_plane.__name__, control_plane=_control_plane)
broken(StoresNothing.__name__, agent=StoresNothing)
