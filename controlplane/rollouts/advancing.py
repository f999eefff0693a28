"""Advance open rollouts: read what agents have reported, let stepping.py decide, and carry out the decision. It writes.

Any number of processes may do this at once. Each action checks again, in its own transaction, that the rollout is still
where it was at the decision. If another process has acted meanwhile, the action is dropped.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet

from controlplane.fleet.models import OperationStep
from controlplane.rollouts.awaiting import integrity_ask, integrity_found
from controlplane.rollouts.counting import AgentNews, Counted, counted_on
from controlplane.rollouts.guards import Finding, judge
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.selectors import (
    WITH_ITS_PLACE,
    agents_of,
    candidate_of,
    groups_below,
    is_gone,
    rollouts_open,
)
from controlplane.rollouts.services import (
    record,
    rollout_drop,
    rollout_finish,
    rollout_go_back,
    rollout_lock,
    step_go,
)
from controlplane.rollouts.spec import Guards, steps_read
from controlplane.rollouts.stepping import (
    Awaited,
    Bake,
    CheckIntegrity,
    Decision,
    Finish,
    GoBack,
    Pause,
    Reach,
    RolloutView,
    Wait,
    decide,
)
from controlplane.rollouts.watching import scope_of
from tenants.actor import SYSTEM
from tenants.audit import audited
from tenants.errors import TenantsError
from tenants.levels import place_of
from tenants.models import Operation

log = logging.getLogger(__name__)
State = Rollout.State
AGENT_COLUMNS = (
    *("pk", "kind", "labels", "group_id", "conditions", "last_seen_at"),
    *("applied_hash", "desired_hash", "rejected_hash", "rejected_reason"),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A rollout as it was read, and the reports of its agents at that time."""

    rollout: Rollout
    view: RolloutView
    evidence: Mapping[str, Any]  # to be stored with it


def rollouts_advance(*, now: datetime) -> int:
    """Take at most one action for each open rollout, and return their number. A failure stops only its own rollout."""
    rollouts = list(_rollouts_due().select_related(*WITH_ITS_PLACE).order_by("created_at"))
    awaited = _awaited_by_operation(rollouts)
    return sum(_advance(rollout, awaited.get(rollout.operation_id, []), now) for rollout in rollouts)


def _rollouts_due() -> "QuerySet[Rollout]":
    """Return the open rollouts that may need an action.

    One to all agents at once needs none until every agent has answered, and there may be many of these.
    """
    running = Operation.objects.filter(pk=OuterRef("operation_id"), state=Operation.State.RUNNING)
    return rollouts_open().exclude(Exists(running), strategy="all")


def _advance(rollout: Rollout, awaited: Sequence[Awaited], now: datetime) -> bool:
    try:
        if is_gone(rollout.level):
            return _drop(rollout, now)
        observation = _seen(rollout, awaited, now)
        return _do(observation, decide(observation.view, now=now), now)
    except Exception:
        log.exception("rollout not advanced", extra={"rollout": str(rollout.pk), "place": rollout.place})
        if not connection.is_usable():
            connection.close()  # the next rollout opens another connection
        return False


def _awaited_by_operation(rollouts: Iterable[Rollout]) -> dict[Any, list[Awaited]]:
    """Return the agents of each operation that have not acknowledged yet, and the known reason. One query for all."""
    operations = [rollout.operation_id for rollout in rollouts if rollout.operation_id is not None]
    if not operations:
        return {}
    waiting = OperationStep.objects.filter(operation__in=operations, state=OperationStep.State.WAITING)
    columns = [f"agent__{name}" for name in ("conditions", "desired_hash", "rejected_hash", "rejected_reason")]
    rows: Any = waiting.order_by("agent_id").values_list("operation_id", "agent_id", *columns)
    awaited_by_operation: dict[Any, list[Awaited]] = {}
    for operation, agent, conditions, *rejection in rows:
        awaited_by_operation.setdefault(operation, []).append(Awaited(agent, _why(conditions), _rejected(*rejection)))
    return awaited_by_operation


def _rejected(desired_hash: str, rejected_hash: str, reason: str) -> str:
    """Return why an agent cannot apply its desired state, or an empty text."""
    return (reason or "it did not say why") if rejected_hash and rejected_hash == desired_hash else ""


def _why(conditions: Mapping[str, Any]) -> str:
    """Return the reason of an agent's first condition, or an empty text."""
    return next((str(condition.get("why", kind)) for kind, condition in conditions.items()), "")


# Reading


def _seen(rollout: Rollout, awaited: Sequence[Awaited], now: datetime) -> Seen:
    steps, reached_agents = steps_read(rollout.steps), frozenset(rollout.reached)
    view = RolloutView(
        is_paused=rollout.state == State.PAUSED,
        strategy=rollout.strategy,
        steps=steps,
        step=rollout.step,
        reached=reached_agents,
        bake_seconds=rollout.bake_seconds,
        baking_since=rollout.baking_since,
        seed=str(rollout.pk),
        candidates=(),
        awaited=[
            awaited_agent
            for awaited_agent in awaited
            if awaited_agent.agent in reached_agents or rollout.step >= len(steps) - 1
        ],
    )
    if view.is_last_step:
        rejected = [
            Awaited(awaited_agent.agent, awaited_agent.rejected) for awaited_agent in awaited if awaited_agent.rejected
        ]
        return Seen(rollout, replace(view, rejected=rejected), rollout.evidence)
    return _watched(rollout, view, now)


def _watched(rollout: Rollout, view: RolloutView, now: datetime) -> Seen:
    """Read a canary before its last step, with its agents' counters and their sums."""
    columns = AGENT_COLUMNS if rollout.baking_since is None else (*AGENT_COLUMNS, "heartbeat")
    rows: Any = agents_of(groups_below(place_of(rollout.level))).values(*columns)
    agents = [_news(row, scope_of(rollout.level)) for row in rows]
    guards = Guards.model_validate(rollout.guards)
    evidence = dict(rollout.evidence)
    findings: Sequence[Finding] = ()
    if rollout.baking_since is not None:
        counted = counted_on(Counted.read(evidence), agents, view.reached, seed=view.seed, now=now.timestamp())
        findings = judge(guards, *counted.sides())
        evidence |= counted.stored() | {"findings": [finding.stored() for finding in findings]}
    integrity = integrity_found(evidence.get("integrity"))
    reached_news = [news for news in agents if news.agent in view.reached]
    full_view = replace(
        view,
        candidates=[candidate_of(row) for row in rows],
        rejected=[Awaited(news.agent, news.rejected) for news in reached_news if news.rejected],
        silent=[Awaited(news.agent, news.silent) for news in reached_news if news.silent and news.kind == "engine"],
        findings=findings,
        checks_integrity=guards.integrity,
        unheld=_unheld(rows, view),
        integrity=integrity.state,
        integrity_words=integrity.words,
        integrity_details=integrity.details,
    )
    return Seen(rollout, full_view, evidence)


def _unheld(rows: Iterable[Mapping[str, Any]], view: RolloutView) -> list[Awaited]:
    """Return the reached engines that were taken over since they acknowledged, or never reported.

    During a bake, an agent may be behind for other reasons.
    """
    reached_rows = [row for row in rows if row["kind"] == "engine" and row["pk"] in view.reached]
    return [Awaited(row["pk"], _why(row["conditions"])) for row in reached_rows if _is_unheld(row, view)]


def _is_unheld(row: Mapping[str, Any], view: RolloutView) -> bool:
    is_behind = row["applied_hash"] != row["desired_hash"]
    return row["last_seen_at"] is None or (is_behind and (view.baking_since is None or not row["applied_hash"]))


def _news(row: Mapping[str, Any], scope: str) -> AgentNews:
    heartbeat, conditions = row.get("heartbeat", {}), row["conditions"]
    applied_hash = (heartbeat.get("applied") or {}).get("hash")
    silent_condition = next((condition for condition in ("stale", "engine_down") if condition in conditions), None)
    return AgentNews(
        agent=row["pk"],
        kind=row["kind"],
        boot=str((heartbeat.get("engine") or {}).get("boot") or ""),
        counted=heartbeat.get("counters", {}).get(scope),
        is_up_to_date=applied_hash == row["applied_hash"],
        rejected=_rejected(row["desired_hash"], row["rejected_hash"], row["rejected_reason"]),
        silent="" if silent_condition is None else _why({silent_condition: conditions[silent_condition]}),
    )


# Acting


def _do(observation: Seen, decision: Decision, now: datetime) -> bool:
    if isinstance(decision, Wait):
        return _keep(observation, decision)
    if isinstance(decision, GoBack):
        return _go_back(observation, decision, now)
    with audited() as journal:
        rollout = rollout_lock(observation.rollout)
        if not _is_where_it_was(rollout, observation.rollout):
            return False
        rollout.evidence = dict(observation.evidence)
        match decision:
            case Bake():
                _bake(rollout, now)
            case CheckIntegrity():
                _check_integrity(rollout, observation.view, now)
            case Pause(why, details):
                rollout.state = State.PAUSED
                rollout.say(why, details)
                rollout.save()
                record(journal, SYSTEM, "rollout.pause", rollout, numbers=rollout.evidence.get("findings", []))
            case Reach(step, agents):
                _remember_bake(rollout, now)
                step_go(rollout, step=step, reached=agents, now=now)
                record(
                    journal, SYSTEM, "rollout.advance", rollout, reached=rollout.reached, numbers=_last_bake(rollout)
                )
            case Finish():
                rollout_finish(journal, rollout, now=now)
    return True


def _is_where_it_was(current: Rollout, previous: Rollout) -> bool:
    return (current.state, current.step, current.baking_since) == (previous.state, previous.step, previous.baking_since)


def _keep(observation: Seen, wait: Wait) -> bool:
    """Store what was observed. This decides nothing, so it writes no audit record."""
    rollout = observation.rollout
    stored = rollout.evidence, rollout.why, rollout.details
    if wait.why:
        rollout.say(wait.why, wait.details)
    if stored != (observation.evidence, rollout.why, rollout.details):
        unchanged = Rollout.objects.filter(pk=rollout.pk, state=rollout.state, step=rollout.step)
        texts = {"why": rollout.why, "details": rollout.details}
        unchanged.filter(baking_since=rollout.baking_since).update(evidence=observation.evidence, **texts)
    return False


def _bake(rollout: Rollout, now: datetime) -> None:
    """Begin the bake and its counting, and note when agents applied the policy.

    A newly reached agent misses blocks of the old format for as long as they would have lived.
    """
    applied = rollout.evidence.get("applied_at", {})
    rollout.evidence |= {"applied_at": dict.fromkeys(rollout.reached, now.timestamp()) | applied}
    rollout.baking_since = now
    rollout.say(f"Step {rollout.step + 1} of {len(rollout.steps)} bakes for {rollout.bake_seconds} s.")
    rollout.save()


def _check_integrity(rollout: Rollout, view: RolloutView, now: datetime) -> None:
    operation = integrity_ask(actor=SYSTEM, scope=rollout.place, engines=view.engines_reached, now=now)
    rollout.evidence |= {"integrity": str(operation.pk)}
    rollout.say("The reached engines check themselves.")
    rollout.save()


def _remember_bake(rollout: Rollout, now: datetime) -> None:
    bake = {"step": rollout.step, "at": now.isoformat(), "findings": rollout.evidence.get("findings", [])}
    rollout.evidence |= {"bakes": [*rollout.evidence.get("bakes", []), bake]}


def _last_bake(rollout: Rollout) -> Any:
    return rollout.evidence["bakes"][-1]["findings"]


def _go_back(observation: Seen, decision: GoBack, now: datetime) -> bool:
    """Roll back. If the earlier policy is refused by now, pause instead and give people the reason."""
    try:
        rollout_go_back(
            actor=SYSTEM,
            rollout=observation.rollout,
            state=State.ROLLED_BACK,
            why=decision.why,
            details=decision.details,
            evidence=observation.evidence,
        )
    except TenantsError as error:
        log.warning("a rollout cannot go back", extra={"rollout": str(observation.rollout.pk), "error": str(error)})
        why = f"{decision.why} It cannot go back: what was before is refused by now."
        details = f"{decision.details or decision.why} It cannot go back: {error}"
        if observation.rollout.state == State.PAUSED:
            return _keep(observation, Wait(why, details))
        return _do(observation, Pause(why, details), now)
    return True


def _drop(rollout: Rollout, now: datetime) -> bool:
    with audited() as journal:
        locked_rollout = rollout_lock(rollout)
        if locked_rollout.state in Rollout.OPEN:
            rollout_drop(journal, locked_rollout, why="What it was for has been deleted.", now=now)
    return True
