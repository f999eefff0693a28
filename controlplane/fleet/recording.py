"""Store the reports of any number of agents in one transaction. Services.

intake.py decides what a batch means. This module reads the facts for that decision and writes its result, with a number
of queries that does not depend on the number of batches.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from django.db import connection, transaction

from controlplane.fleet.arrivals import Received
from controlplane.fleet.canaries import canaries_store
from controlplane.fleet.columns import columns_sql, json_column, rows_update
from controlplane.fleet.intake import Intake, Known, Proof, intake_plan
from controlplane.fleet.models import Agent, RefusedCommands
from controlplane.fleet.operations import (
    agents_lock,
    namespace_organisations,
    proofs_kept,
    proofs_replace,
    steps_end,
    steps_waiting,
)
from engine_agent.contracts.wire import Batch, Report
from tenants import hooks

MOST_ID = 2**63 - 1
ABOUT = frozenset({"agent.about"})
COUNTED = frozenset({"usage", "levels", "gaps", "diagnostics"})
Batches = Mapping[str, Batch]  # by agent
Numbered = tuple[int, Report]  # the number is that of the agent's spool
RefusedRows = Sequence[Mapping[str, Any]]


class Heard(NamedTuple):
    """The answer about counted usage.

    `journal` maps boots to the position up to which they are counted, where it differs from the agent's report.
    """

    refused_rows: RefusedRows = ()
    journal: Mapping[str, int] = {}


# Adds up reports of the kinds in COUNTED, by agent and within the transaction, and returns the answer by agent. Reports
# that name their journal records may have come before.
Usage = Callable[[Mapping[str, Sequence[Numbered]], datetime], Mapping[str, Heard]]

_READ = (
    "kind",
    "group_id",
    "spool",
    "spool_number",
    "past_spools",
    "lost_reports",
    "applied_hash",
    "applied_generation",
    "applied_at",
    "rejected_hash",
    "rejected_reason",
    "rejected_at",
    "desired_hash",
    "desired_generation",
)
_AGENT_COLUMNS = (
    "id text, spool text, spool_number bigint, past_spools jsonb, lost_reports bigint, applied_hash text, "
    "applied_generation bigint, applied_at timestamptz, rejected_hash text, rejected_reason text, "
    "rejected_at timestamptz"
)
_REFUSED_COLUMNS = "agent_id text, reason text, count bigint, last_what text, last_at timestamptz"


@dataclass(frozen=True, slots=True)
class Stored:
    """The result of one batch, and the agent's desired state at that moment."""

    intake: Intake
    desired_hash: str
    desired_generation: int
    refused_rows: RefusedRows = ()
    journal: Mapping[str, int] = field(default_factory=dict)


def batches_store(batches: Batches, *, now: datetime, usage: Usage | None = None) -> dict[str, Stored]:
    """Store all batches or none, with what `usage` adds up.

    Only agents that no longer exist or are revoked have no result.
    """
    with transaction.atomic():
        agents = {agent.pk: agent for agent in agents_lock(batches).filter(revoked_at=None).only(*_READ)}
        known = _known(agents, batches)
        intakes = {pk: intake_plan(_received(agent), known[pk], batches[pk]) for pk, agent in agents.items()}
        fresh = {pk: intake for pk, intake in intakes.items() if intake.arrival.fresh}
        _agents_write([agents[pk] for pk in fresh], fresh, now=now)
        _refusals_add(fresh, now=now)
        proofs = {pk: intake.facts.proofs for pk, intake in fresh.items() if intake.facts.proofs is not None}
        proofs_replace(proofs, now=now)
        canaries_store(_canaries(agents, fresh), now=now)
        steps_end([ended for intake in fresh.values() for ended in intake.facts.ended], now=now)
        if any(intake.facts.about is not None for intake in fresh.values()):
            _tell()
        counted_reports = _counted({pk: (batches[pk], intake) for pk, intake in intakes.items()})
        answers = usage(counted_reports, now) if usage is not None and counted_reports else {}
    return {
        pk: Stored(intake, agents[pk].desired_hash, agents[pk].desired_generation, *answers.get(pk, Heard()))
        for pk, intake in intakes.items()
    }


def _canaries(agents: Mapping[str, Agent], fresh: Mapping[str, Intake]) -> list[tuple[Agent, Mapping[str, Any]]]:
    """Return gateways' isolation probe reports in order."""
    gateway_intakes = ((agents[pk], intake) for pk, intake in fresh.items() if agents[pk].kind == "gateway")
    return [
        (agent, report.told)
        for agent, intake in gateway_intakes
        for report in intake.arrival.fresh
        if report.kind == "canary"
    ]


def _counted(intakes: Mapping[str, tuple[Batch, Intake]]) -> dict[str, list[Numbered]]:
    reports_by_agent = dict[str, list[Numbered]]()
    for pk, (batch, intake) in intakes.items():
        numbered = enumerate(batch.reports, batch.first)
        first = batch.first + intake.arrival.seen
        if counted := [
            numbered_report
            for numbered_report in numbered
            if _is_counted(numbered_report[1], is_fresh=numbered_report[0] >= first)
        ]:
            reports_by_agent[pk] = counted
    return reports_by_agent


def _is_counted(report: Report, *, is_fresh: bool) -> bool:
    """Return whether to add up a report: if it is new, or if it is usage that names its journal records.

    The records then decide what is new: a report's number may be used twice, and an agent that missed an answer must
    learn again which rows were not counted.
    """
    if report.kind == "usage" and report.told.get("after") is not None:
        return True
    return is_fresh and report.kind in COUNTED


def _tell() -> None:
    """Wake the planner at commit: the models that an engine serves are part of its gateways' desired state."""
    for listener in hooks.after_commit:
        transaction.on_commit(partial(listener, ABOUT), robust=True)


# Reading the facts


def _received(agent: Agent) -> Received:
    past_spools = tuple((spool, number) for spool, number in agent.past_spools)
    return Received(agent.spool, agent.spool_number, past_spools, agent.lost_reports)


def _known(agents: Mapping[str, Agent], batches: Batches) -> dict[str, Known]:
    applied = _speaking(agents, batches, {"applied"})
    generations = _generations(
        [(pk, content["generation"]) for pk, contents in applied.items() for content in contents]
    )
    purged = _speaking(agents, batches, {"purged"})
    owners = namespace_organisations(set(_namespaces(purged)))
    steps = steps_waiting(_speaking(agents, batches, {"applied", "receipt"}))
    proofs = proofs_kept({*applied, *purged})
    return {
        pk: Known(
            applied_generation=agent.applied_generation,
            rejected_hash=agent.rejected_hash,
            desired_generation=agent.desired_generation,
            generations=generations.get(pk, {}),
            organisations=owners,
            steps=steps.get(pk, ()),
            proofs=proofs.get(pk, list[Proof]()),
        )
        for pk, agent in agents.items()
    }


def _speaking(agents: Iterable[str], batches: Batches, kinds: set[str]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the contents of the agents' reports of these kinds; agents without any are left out."""
    contents_by_agent = {pk: [report.told for report in batches[pk].reports if report.kind in kinds] for pk in agents}
    return {pk: contents for pk, contents in contents_by_agent.items() if contents}


def _namespaces(purged: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterable[int]:
    for contents in purged.values():
        for content in contents:
            if content["namespace"].isdecimal() and int(content["namespace"]) <= MOST_ID:
                yield int(content["namespace"])


def _generations(agent_generations: Sequence[tuple[str, int]]) -> dict[str, dict[int, str]]:
    """Return the desired hashes of these agents at these generations."""
    if not agent_generations:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT agent_id, number, hash FROM fleet_agentgeneration "
            "WHERE (agent_id, number) IN (SELECT * FROM unnest(%s::text[], %s::bigint[]))",
            [list(column) for column in zip(*agent_generations, strict=True)],
        )
        rows = cursor.fetchall()
    generations: dict[str, dict[int, str]] = {}
    for agent, number, hash_ in rows:
        generations.setdefault(agent, {})[number] = hash_
    return generations


# Writing the result


def _agents_write(agents: Sequence[Agent], intakes: Mapping[str, Intake], *, now: datetime) -> None:
    for agent in agents:
        _agent_change(agent, intakes[agent.pk], now=now)
    rows_update(Agent, _AGENT_COLUMNS, [_agent_row(agent) for agent in agents], last_seen_at=now)
    abouts = [(pk, json_column(intake.facts.about)) for pk, intake in intakes.items() if intake.facts.about is not None]
    rows_update(Agent, "id text, about jsonb", abouts)


def _agent_change(agent: Agent, intake: Intake, *, now: datetime) -> None:
    received, facts = intake.arrival.received, intake.facts
    agent.spool, agent.spool_number, agent.past_spools = received.spool, received.number, received.past
    agent.lost_reports = received.lost
    if facts.applied is not None:
        agent.applied_hash, agent.applied_generation = facts.applied.hash, facts.applied.generation
        agent.applied_at = now
    if facts.rejected is not None:
        agent.rejected_hash, agent.rejected_reason = facts.rejected.hash, facts.rejected.reason
        agent.rejected_at = now
    elif facts.is_rejection_over:
        agent.rejected_hash, agent.rejected_reason, agent.rejected_at = "", "", None


def _agent_row(agent: Agent) -> tuple[Any, ...]:
    return (
        agent.pk,
        agent.spool,
        agent.spool_number,
        json_column(agent.past_spools),
        agent.lost_reports,
        agent.applied_hash,
        agent.applied_generation,
        agent.applied_at,
        agent.rejected_hash,
        agent.rejected_reason,
        agent.rejected_at,
    )


def _refusals_add(intakes: Mapping[str, Intake], *, now: datetime) -> None:
    rows = [
        (pk, reason, count, description, now)
        for pk, intake in intakes.items()
        for reason, (count, description) in intake.facts.refused.items()
    ]
    if not rows:
        return
    names, arrays = columns_sql(_REFUSED_COLUMNS)
    table = RefusedCommands._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} AS old ({names}) SELECT * FROM unnest({arrays}) "  # noqa: S608  # names are ours
            "ON CONFLICT (agent_id, reason) DO UPDATE SET last_what = excluded.last_what, last_at = excluded.last_at, "
            f"count = least(old.count::numeric + excluded.count, {MOST_ID})::bigint",
            [list(column) for column in zip(*rows, strict=True)],
        )
