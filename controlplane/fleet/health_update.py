"""Update the conditions of all agents: read the agents, let health.py evaluate them, and write the changes."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import transaction
from django.db.models import BigIntegerField, Case, Exists, OuterRef, QuerySet, Subquery, TextField, When
from django.db.models.fields.json import KT, KeyTextTransform
from django.db.models.functions import Cast

from controlplane.common.version import version
from controlplane.fleet.cadence import cadence_seconds, stale_after_seconds
from controlplane.fleet.columns import json_column, rows_update
from controlplane.fleet.formats import NONE, formats_needed
from controlplane.fleet.health import AgentFacts, Conditions, Needed, Refused, conditions
from controlplane.fleet.models import Agent, AgentGeneration, RefusedCommands
from controlplane.fleet.operations import agents_lock
from controlplane.fleet.quality import Served, results_read, served_by
from kernels.formats import BASELINE

MOST_TEXTS = 4_096
SERVING = ("accelerator", "kv_dtypes", "computed_as", "models")  # the parts of `about` that are evaluated, as JSON
# The history of an agent that has applied its desired state.
SETTLED: Mapping[str, Any] = {"is_held_known": True, "is_applied_known": True, "behind_since": None}


@dataclass(frozen=True, slots=True)
class Judged:
    """One agent's conditions before and after, and the formats that it has ever declared."""

    agent: str
    before: Conditions
    after: Conditions
    formats_before: Collection[str]
    formats_after: Collection[str]

    @property
    def is_news(self) -> bool:
        return self.before != self.after

    @property
    def is_changed(self) -> bool:
        return self.is_news or set(self.formats_before) != set(self.formats_after)


def conditions_update(*, now: datetime) -> list[str]:
    """Update all conditions, and return the agents with changed ones so that open pages can be refreshed."""
    rows = list(_agents())
    stale_after = stale_after_seconds(cadence_seconds(len(rows)))
    needed, refused, idle = formats_needed(), _refused(), _idle(rows)
    histories = _histories([row["id"] for row in rows if not _is_settled(row)])
    judgements = [
        _judged(
            {**row, **histories.get(row["id"], SETTLED)},
            needed.get(row["group_id"], NONE),
            refused.get(row["id"], ()),
            idle.get(row["id"], ""),
            now=now,
            stale_after=stale_after,
        )
        for row in rows
    ]
    _write([judgement for judgement in judgements if judgement.is_changed])
    return [judgement.agent for judgement in judgements if judgement.is_news]


def _agents() -> "QuerySet[Agent, dict[str, Any]]":
    """Read the agents, and of their heartbeats only what is evaluated: counters are most of a heartbeat.

    JSON is read as text and parsed through a cache, because nearly all of it repeats another agent or the last update.
    """
    parts = (
        "heartbeat__engine",
        "heartbeat__applied",
        "about__version",
        "about__backend",
        *(f"about__{name}" for name in SERVING),
    )
    texts: dict[str, KeyTextTransform | Cast] = {f"{part}_text": KT(part) for part in parts}
    texts |= {f"{column}_text": Cast(column, TextField()) for column in ("conditions", "formats_once")}
    rows: QuerySet[Agent, dict[str, Any]] = (
        Agent.objects.filter(revoked_at=None)
        .order_by("pk")
        .values(
            *("id", "kind", "group_id", "is_draining", "last_seen_at", "desired_hash", "desired_generation"),
            *("applied_hash", "applied_generation", "rejected_hash", "rejected_reason", "rejected_at"),
            *("clock_skew_seconds", "lost_reports"),
            **texts,
        )
    )
    return rows


@lru_cache(maxsize=MOST_TEXTS)
def _read(text: str | None) -> Any:
    """Parse JSON through a cache. Callers share the result and must not change it."""
    return None if text is None else json.loads(text)


def _is_settled(row: Mapping[str, Any]) -> bool:
    """Return whether acknowledgement and last heartbeat both match the desired state. No history is needed then."""
    applied = _read(row["heartbeat__applied_text"])
    desired = row["desired_generation"], row["desired_hash"]
    is_applied = applied is None or (applied["generation"], applied["hash"]) == desired
    return is_applied and (row["applied_generation"], row["applied_hash"]) == desired


def _histories(agents: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """Return whether the states that these agents report were ever desired, and when a newer one first was."""
    if not agents:
        return {}
    generations = AgentGeneration.objects.filter(agent=OuterRef("pk"))
    reported_generations = generations.filter(number=OuterRef("held_generation"), hash=OuterRef("held_hash"))
    applied_generations = generations.filter(number=OuterRef("applied_generation"), hash=OuterRef("applied_hash"))
    newer_generations = generations.filter(number__gt=OuterRef("applied_generation")).order_by("number")
    annotated = Agent.objects.filter(pk__in=agents).annotate(
        held_generation=Cast(KT("heartbeat__applied__generation"), BigIntegerField()),
        held_hash=KT("heartbeat__applied__hash"),
    )
    histories = annotated.annotate(
        is_held_known=Case(When(held_hash=None, then=True), default=Exists(reported_generations)),
        is_applied_known=Case(When(applied_hash="", then=True), default=Exists(applied_generations)),
        behind_since=Subquery(newer_generations.values("at")[:1]),
    )
    return {row["id"]: row for row in histories.values("id", "is_held_known", "is_applied_known", "behind_since")}


def _refused() -> Mapping[str, list[Refused]]:
    refused_by_agent = defaultdict[str, list[Refused]](list)
    for row in RefusedCommands.objects.all():
        refused_by_agent[row.agent_id].append(Refused(row.reason, row.count, row.last_at, row.last_what))
    return refused_by_agent


def _idle(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, str]:
    """Return by engine why the quality gate allows it no requests. Results are read only if there is a candidate."""
    served_by_agent = {
        row["id"]: served for row in rows if row["kind"] == "engine" and (served := _without_baseline(row))
    }
    if not served_by_agent:
        return {}
    results = results_read({served_model.model for served in served_by_agent.values() for served_model in served})
    return {agent: " ".join(filter(None, map(results.why_idle, served))) for agent, served in served_by_agent.items()}


def _without_baseline(row: Mapping[str, Any]) -> list[Served]:
    parts = {name: part for name in SERVING if (part := _read(row[f"about__{name}_text"])) is not None}
    served = served_by(row["id"], {**parts, "backend": row["about__backend_text"]})
    return [served_model for served_model in served if BASELINE not in served_model.formats]


def _judged(
    row: Mapping[str, Any],
    needed: Collection[Needed],
    refused: Collection[Refused],
    why_idle: str,
    *,
    now: datetime,
    stale_after: float,
) -> Judged:
    facts, before = _facts(row, needed, refused, why_idle), _read(row["conditions_text"])
    after = conditions(facts, before=before, now=now, stale_after=stale_after, ours=version())
    return Judged(row["id"], before, after, _read(row["formats_once_text"]), facts.formats_once)


def _facts(
    row: Mapping[str, Any], needed: Collection[Needed], refused: Collection[Refused], why_idle: str
) -> AgentFacts:
    formats = _read(row["about__kv_dtypes_text"]) or ()
    models = _model_formats(row["about__models_text"])
    formats_once = _formats_once(row["formats_once_text"], row["about__kv_dtypes_text"], row["about__models_text"])
    return AgentFacts(
        kind=row["kind"],
        is_revoked=False,
        is_draining=row["is_draining"],
        last_seen_at=row["last_seen_at"],
        desired_hash=row["desired_hash"],
        behind_since=row["behind_since"],
        applied_hash=row["applied_hash"],
        rejected_hash=row["rejected_hash"],
        rejected_reason=row["rejected_reason"],
        rejected_at=row["rejected_at"],
        is_held_known=row["is_held_known"] and row["is_applied_known"],
        engine=_read(row["heartbeat__engine_text"]) or {},
        held_hash=(_read(row["heartbeat__applied_text"]) or {}).get("hash"),
        clock_skew_seconds=row["clock_skew_seconds"],
        version=row["about__version_text"] or "",
        formats=formats,
        formats_once=formats_once,
        model_formats=models,
        needed=needed,
        why_idle=why_idle,
        refused=refused,
        lost_reports=row["lost_reports"],
    )


@lru_cache(maxsize=MOST_TEXTS)
def _model_formats(models: str | None) -> Mapping[str, Collection[str]]:
    return {model["name"]: model["kv_dtypes"] for model in _read(models) or ()}


@lru_cache(maxsize=MOST_TEXTS)
def _formats_once(once: str, formats: str | None, models: str | None) -> Collection[str]:
    """Return the formats that the agent has ever declared, including those it declares now."""
    model_kv_dtypes = (kv_dtype for model_formats in _model_formats(models).values() for kv_dtype in model_formats)
    return tuple(sorted({*_read(once), *(_read(formats) or ()), *model_kv_dtypes}))


def _write(changed: Collection[Judged]) -> None:
    if not changed:
        return
    columns = [
        (judgement.agent, json_column(judgement.after), json_column(sorted(judgement.formats_after)))
        for judgement in changed
    ]
    with transaction.atomic():
        list(agents_lock([judgement.agent for judgement in changed]).values_list("pk"))  # in the usual lock order
        rows_update(Agent, "id text, conditions jsonb, formats_once jsonb", columns)
