"""Which KV formats may carry traffic: those that passed on a model's revision and backend, or that an operator let by.

The newest result counts, but not over another where it says nothing: that of a quick or blind run. `bf16` always
passes: it is what the others are compared with.
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
UNTELLING = "is_untelling"  # among a result's figures: of a run that was quick or blind, and left the format open


@dataclass(frozen=True, slots=True)
class Served:
    """One model as one engine serves it. `backend` is what computes, as the quality suite names it."""

    agent: str
    model: str
    revision: str
    backend: str
    formats: tuple[str, ...]  # that it can do
    computed_as: tuple[tuple[str, str], ...] = ()  # formats that are computed as another, with that one

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
        """None where nobody has measured it. What is computed as another format is judged as that one, unless it has a
        result under its own name."""
        known = self.verdicts.get(served.key, {})
        own = "passed" if kv_dtype == BASELINE else known.get(kv_dtype)
        return own or known.get(served.computed(kv_dtype))

    def may_serve(self, served: Served, kv_dtype: str) -> bool:
        return self.verdict(served, kv_dtype) in LET_THROUGH

    def allowed(self, served: Served) -> tuple[str, ...]:
        """What it can do and may."""
        return tuple(one for one in served.formats if self.may_serve(served, one))

    def why_not(self, served: Served, kv_dtype: str) -> str:
        """The result and what there is instead, as one sentence."""
        result = self._result(served, kv_dtype)
        instead = ", ".join(self.allowed(served)) or "nothing"
        return f"{format_words(kv_dtype, dict(served.computed_as))} {result} on {served.name}; there is {instead}"

    def why_idle(self, served: Served) -> str:
        """Why an engine gets no request for a model, where nothing that it can do may carry traffic; else empty."""
        if not served.formats or self.allowed(served):
            return ""
        computed = dict.fromkeys(served.computed(one) for one in served.formats)
        said = ", ".join(f"{one} {self._result(served, one)}" for one in computed)
        return f"it gets no requests: {said} on {served.name}; {BASELINE} needs no result"

    def _result(self, served: Served, kv_dtype: str) -> str:
        verdict = self.verdict(served, kv_dtype)
        return "was not measured" if verdict is None else f"is {verdict}"


def format_words(kv_dtype: str, computed_as: Mapping[str, str]) -> str:
    """A format as people are to read it of an engine that computes it as another one."""
    return f"{kv_dtype} (computed as {computed_as[kv_dtype]})" if kv_dtype in computed_as else kv_dtype


def backend_of(about: Mapping[str, Any]) -> str:
    """What computes there, as results are told apart by it: what a CPU computes says nothing of a GPU's kernels."""
    return measured_as(str(about.get("backend", "")), has_accelerator=bool(about.get("accelerator")))


def served_by(agent: str, about: Mapping[str, Any]) -> list[Served]:
    """All models of one engine, as it described itself."""
    own, backend = about.get("kv_dtypes", ()), backend_of(about)
    computed_as = tuple(sorted(about.get("computed_as", {}).items()))
    return [
        Served(agent, one["name"], one["revision"], backend, tuple(one.get("kv_dtypes") or own), computed_as)
        for one in about.get("models", ())
    ]


def served_in(group_ids: Iterable[int]) -> dict[int, list[Served]]:
    """By group, what its engines serve; groups without any are left out. One query."""
    rows = Agent.objects.filter(kind="engine", revoked_at=None, group__in=set(group_ids)).order_by("pk")
    found: dict[int, list[Served]] = {}
    for group, agent, about in rows.values_list("group_id", "pk", "about"):
        found.setdefault(group, []).extend(served_by(agent, about))
    return {group: served for group, served in found.items() if served}


def results_read(models: Iterable[str] | None = None) -> Results:
    """Of these models, or of all. One query."""
    verdicts: dict[tuple[str, str, str], dict[str, str]] = {}
    for one in newest_results(models):
        verdicts.setdefault((one.model, one.revision, one.backend), {})[one.kv_dtype] = one.verdict
    return Results(verdicts)


def newest_results(models: Iterable[str] | None = None) -> list[QualityResult]:
    """One for each model, revision, backend and format: one that tells nothing only where there is no other."""
    rows = QualityResult.objects.all() if models is None else QualityResult.objects.filter(model__in=set(models))
    place = ("model", "revision", "backend", "kv_dtype")
    tells = Case(When(**{f"figures__{UNTELLING}": True}, then=1), default=0)
    return list(rows.order_by(*place, tells, "-created_at", "-pk").distinct(*place))


def refused_formats(served: Sequence[Served], results: Results | None = None) -> dict[str, dict[str, str]]:
    """By model, the formats that some engine could do and none of them may, each with why: gates for the gateways.

    Where one engine may and another may not, there is no gate: routes name the formats that each may.
    """
    known = results_read({one.model for one in served}) if results is None else results
    refused: dict[str, dict[str, str]] = {}
    for model in sorted({one.model for one in served}):
        ours = [one for one in served if one.model == model]
        open_ones = {kv_dtype for one in ours for kv_dtype in known.allowed(one)}
        shut = [one for one in OFFERED if one not in open_ones and any(one in served.formats for served in ours)]
        if shut:
            refused[model] = {one: known.why_not(_who_could(ours, one), one) for one in shut}
    return refused


def _who_could(served: Sequence[Served], kv_dtype: str) -> Served:
    return next(one for one in served if kv_dtype in one.formats)
