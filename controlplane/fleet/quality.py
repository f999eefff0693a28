"""Which KV formats may carry traffic: those that passed on a model's revision and backend, or that an operator let by.

The newest result counts, but not over another where it says nothing: that of a quick or blind run. `bf16` always
passes: it is what the others are compared with.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Case, When

from controlplane.fleet.models import Agent, QualityResult
from tenants.policy import BUILT_IN

BASELINE = "bf16"
LET_THROUGH = (QualityResult.Verdict.PASSED, QualityResult.Verdict.OVERRIDDEN)
FORMATS = ("bf16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "k8v4", "int4", "nvfp4")
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

    @property
    def key(self) -> tuple[str, str, str]:
        return self.model, self.revision, self.backend

    @property
    def name(self) -> str:
        return f"{self.model} at {self.revision[:12]} on {self.backend}"


@dataclass(frozen=True, slots=True)
class Results:
    """The newest verdict of each format, by model, revision and backend."""

    verdicts: Mapping[tuple[str, str, str], Mapping[str, str]] = field(default_factory=dict)

    def verdict(self, served: Served, kv_dtype: str) -> str | None:
        """None where nobody has measured it."""
        return "passed" if kv_dtype == BASELINE else self.verdicts.get(served.key, {}).get(kv_dtype)

    def may_serve(self, served: Served, kv_dtype: str) -> bool:
        return self.verdict(served, kv_dtype) in LET_THROUGH

    def allowed(self, served: Served) -> tuple[str, ...]:
        """What it can do and may."""
        return tuple(one for one in served.formats if self.may_serve(served, one))

    def why_not(self, served: Served, kv_dtype: str) -> str:
        """The result and what there is instead, as one sentence."""
        verdict = self.verdict(served, kv_dtype)
        result = "was not measured" if verdict is None else f"is {verdict}"
        instead = ", ".join(self.allowed(served)) or "nothing"
        return f"{kv_dtype} {result} on {served.name}; there is {instead}"


def backend_of(about: Mapping[str, Any]) -> str:
    """What computes there: our own engine says `paged`, and the suite measures it on a CPU and a GPU apart."""
    if about.get("backend") != "paged":
        return str(about.get("backend", ""))
    return "triton-cuda" if about.get("accelerator") else "torch-cpu"


def served_by(agent: str, about: Mapping[str, Any]) -> list[Served]:
    """All models of one engine, as it described itself."""
    own, backend = about.get("kv_dtypes", ()), backend_of(about)
    return [
        Served(agent, one["name"], one["revision"], backend, tuple(one.get("kv_dtypes") or own))
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
        shut = [one for one in FORMATS if one not in open_ones and any(one in served.formats for served in ours)]
        if shut:
            refused[model] = {one: known.why_not(_who_could(ours, one), one) for one in shut}
    return refused


def _who_could(served: Sequence[Served], kv_dtype: str) -> Served:
    return next(one for one in served if kv_dtype in one.formats)
