"""The quality gate: KV formats may carry traffic if they passed on a model's revision and backend, or were overridden.

The newest result counts, but an inconclusive one, of a quick or blind run, does not replace another. `bf16` always
passes, because the others are compared with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Case, When

from controlplane.fleet.models import Agent, QualityResult
from engine_agent.backends.registry import measured_as
from kernels.formats import BASELINE, OFFERED
from tenants.policy import BUILT_IN

LET_THROUGH = (QualityResult.Verdict.PASSED, QualityResult.Verdict.OVERRIDDEN)
DEFAULT = BUILT_IN["kv_dtype"]
UNTELLING = "is_untelling"  # key in a result's figures: the run was quick or blind, and left the format open


@dataclass(frozen=True, slots=True)
class Served:
    """A model as one engine serves it. `backend` is the name that the quality suite uses."""

    agent: str
    model: str
    revision: str
    backend: str
    formats: tuple[str, ...]  # that the engine supports
    computed_as: tuple[tuple[str, str], ...] = ()  # (format, the format that it is computed as)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.model, self.revision, self.backend

    @property
    def name(self) -> str:
        return f"{self.model} at {self.revision[:12]} on {self.backend}"

    def computed(self, kv_dtype: str) -> str:
        return dict(self.computed_as).get(kv_dtype, kv_dtype)


@dataclass(frozen=True, slots=True)
class Results:
    """The newest verdict of each format, by model, revision and backend."""

    verdicts: Mapping[tuple[str, str, str], Mapping[str, str]] = field(default_factory=dict)

    def verdict(self, served: Served, kv_dtype: str) -> str | None:
        """Return the verdict on a format, or None if it was never measured.

        A format computed as another takes that format's verdict, unless it has a result under its own name.
        """
        known = self.verdicts.get(served.key, {})
        own_verdict = "passed" if kv_dtype == BASELINE else known.get(kv_dtype)
        return own_verdict or known.get(served.computed(kv_dtype))

    def may_serve(self, served: Served, kv_dtype: str) -> bool:
        return self.verdict(served, kv_dtype) in LET_THROUGH

    def allowed(self, served: Served) -> tuple[str, ...]:
        """Return the formats that the engine supports and may serve."""
        return tuple(kv_dtype for kv_dtype in served.formats if self.may_serve(served, kv_dtype))

    def why_not(self, served: Served, kv_dtype: str) -> str:
        """Return a sentence with the format's result and the formats to use instead."""
        result = self._result(served, kv_dtype)
        alternatives = ", ".join(self.allowed(served)) or "nothing"
        return f"{format_words(kv_dtype, dict(served.computed_as))} {result} on {served.name}; there is {alternatives}"

    def why_idle(self, served: Served) -> str:
        """Return why an engine gets no request for a model: none of its formats may carry traffic. Empty if one may."""
        if not served.formats or self.allowed(served):
            return ""
        computed = dict.fromkeys(served.computed(kv_dtype) for kv_dtype in served.formats)
        results = ", ".join(f"{kv_dtype} {self._result(served, kv_dtype)}" for kv_dtype in computed)
        return f"it gets no requests: {results} on {served.name}; {BASELINE} needs no result"

    def _result(self, served: Served, kv_dtype: str) -> str:
        verdict = self.verdict(served, kv_dtype)
        return "was not measured" if verdict is None else f"is {verdict}"


def format_words(kv_dtype: str, computed_as: Mapping[str, str]) -> str:
    """Return the name of a format for people, with the format that it is computed as."""
    return f"{kv_dtype} (computed as {computed_as[kv_dtype]})" if kv_dtype in computed_as else kv_dtype


def backend_of(about: Mapping[str, Any]) -> str:
    """Return the backend under which results are stored. A CPU's results say nothing about a GPU's kernels."""
    return measured_as(str(about.get("backend", "")), has_accelerator=bool(about.get("accelerator")))


def served_by(agent: str, about: Mapping[str, Any]) -> list[Served]:
    default_formats, backend = about.get("kv_dtypes", ()), backend_of(about)
    computed_as = tuple(sorted(about.get("computed_as", {}).items()))
    return [
        Served(
            agent,
            model["name"],
            model["revision"],
            backend,
            tuple(model.get("kv_dtypes") or default_formats),
            computed_as,
        )
        for model in about.get("models", ())
    ]


def served_in(group_ids: Iterable[int]) -> dict[int, list[Served]]:
    """Return the models that engines serve, by group, in one query. Groups without any are left out."""
    rows = Agent.objects.filter(kind="engine", revoked_at=None, group__in=set(group_ids)).order_by("pk")
    served_by_group: dict[int, list[Served]] = {}
    for group, agent, about in rows.values_list("group_id", "pk", "about"):
        served_by_group.setdefault(group, []).extend(served_by(agent, about))
    return {group: served for group, served in served_by_group.items() if served}


def results_read(models: Iterable[str] | None = None) -> Results:
    """Read the results of these models, or of all, in one query."""
    verdicts: dict[tuple[str, str, str], dict[str, str]] = {}
    for result in newest_results(models):
        verdicts.setdefault((result.model, result.revision, result.backend), {})[result.kv_dtype] = result.verdict
    return Results(verdicts)


def newest_results(models: Iterable[str] | None = None) -> list[QualityResult]:
    """Return the result that counts for each model, revision, backend and format: the newest conclusive one, else the
    newest."""
    rows = QualityResult.objects.all() if models is None else QualityResult.objects.filter(model__in=set(models))
    key_fields = ("model", "revision", "backend", "kv_dtype")
    is_inconclusive = Case(When(**{f"figures__{UNTELLING}": True}, then=1), default=0)
    return list(rows.order_by(*key_fields, is_inconclusive, "-created_at", "-pk").distinct(*key_fields))


def refused_formats(served: Sequence[Served], results: Results | None = None) -> dict[str, dict[str, str]]:
    """Return by model the formats that some engine supports and none may serve, with reasons. Gateways refuse these.

    A format that one engine may serve and another may not is not refused: routes name the formats of each engine.
    """
    known = results_read({served_model.model for served_model in served}) if results is None else results
    refused: dict[str, dict[str, str]] = {}
    for model in sorted({served_model.model for served_model in served}):
        candidates = [served_model for served_model in served if served_model.model == model]
        allowed = {kv_dtype for served_model in candidates for kv_dtype in known.allowed(served_model)}
        blocked = [
            kv_dtype
            for kv_dtype in OFFERED
            if kv_dtype not in allowed and any(kv_dtype in served.formats for served in candidates)
        ]
        if blocked:
            refused[model] = {
                kv_dtype: known.why_not(_who_could(candidates, kv_dtype), kv_dtype) for kv_dtype in blocked
            }
    return refused


def _who_could(served: Sequence[Served], kv_dtype: str) -> Served:
    return next(served_model for served_model in served if kv_dtype in served_model.formats)
