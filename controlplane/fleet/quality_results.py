"""Results of the quality suite: read from its file, stored with an audit record, or overridden by an operator.

engine_agent/tools/quality/artefact.py writes the file; this module decides. A run that was too small or blind, or in
which the exact formats did not pass, allows no format, whatever its results for single formats.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from controlplane.fleet.models import QualityResult
from controlplane.fleet.quality import UNTELLING, newest_results
from kernels.formats import FLOOR, OFFERED
from tenants.actor import Actor
from tenants.audit import audited
from tenants.errors import FieldProblem, InvalidFields
from tenants.fields import note_check
from tenants.validation import field_problems

SCHEMA = "luminet/quality/1"
SHORTCOMINGS_KEPT = 10
ScaleSets = Literal["any", "neutral", "calibrated"]
Verdict = Literal["passed", "failed", "unresolved"]
WORST: tuple[Verdict, ...] = ("failed", "unresolved", "passed")
Word = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Read(BaseModel):
    """A part of the file. Members that decide nothing are ignored: the digest proves that the file is unchanged."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Figures(_Read):
    delta_percent: Number
    divergence: Number
    byte_delta_percent: Number
    byte_delta_percent_low: Number
    byte_delta_percent_high: Number
    byte_divergence: Number
    byte_divergence_low: Number
    byte_divergence_high: Number
    divergence_p99: Number
    agreement: Number
    documents: int
    tokens: int


class Measurement(_Read):
    kv_format: Word
    scale_set: Annotated[str, StringConstraints(max_length=100)]
    token_bytes: int
    axes: dict[Word, Figures]
    needle: dict[Word, Number]
    hit_equals_miss: bool
    verdict: Verdict
    shortcomings: list[str]


class Artefact(_Read):
    """One run of the suite on one model revision and one backend."""

    model_revision: Word
    backend: Annotated[str, StringConstraints(min_length=1, max_length=20)]
    device: str
    documents: int
    is_quick: bool
    is_control_rejected: bool
    measurements: Annotated[list[Measurement], Field(max_length=100)]
    digest: str

    @property
    def is_telling(self) -> bool:
        """Return whether the run allows a conclusion, either way: it was not quick, and it rejected its control."""
        return self.is_control_rejected and not self.is_quick

    @property
    def doubt(self) -> str:
        """Return why no pass in this run may be believed, or an empty text if they may."""
        if self.is_quick:
            return "the run was quick: too little text to decide by"
        if not self.is_control_rejected:
            return "the run was blind: its control was not rejected"
        floor_measurements = [
            measurement
            for measurement in self.measurements
            if measurement.kv_format in FLOOR and not measurement.scale_set
        ]
        is_exact = {measurement.kv_format for measurement in floor_measurements if measurement.verdict == "passed"} == {
            *FLOOR
        }
        return "" if is_exact else f"{' or '.join(FLOOR)} did not pass: something is wrong with all formats alike"

    def of(self, kv_dtype: str, scales: ScaleSets) -> Measurement | None:
        """Return the measurement that decides on a format: the worst among the scale sets that may be served."""
        candidates = [
            measurement
            for measurement in self.measurements
            if measurement.kv_format == kv_dtype and _is_meant(measurement, scales)
        ]
        return min(candidates, key=lambda measurement: WORST.index(measurement.verdict), default=None)


def _is_meant(measurement: Measurement, scales: ScaleSets) -> bool:
    """Return whether a measurement belongs to these scale sets. Formats in FLOOR have no scales."""
    if scales == "any" or measurement.kv_format in FLOOR:
        return True
    return bool(measurement.scale_set) == (scales == "calibrated")


def artefact_read(document: Mapping[str, Any], *, where: str = "artefact") -> Artefact:
    """Return the artefact if it is unchanged and valid, or raise InvalidFields with everything that is wrong."""
    if document.get("schema") != SCHEMA:
        raise InvalidFields([FieldProblem(f"{where}.schema", f"must be {SCHEMA}")])
    if document.get("digest") != artefact_digest(document):
        raise InvalidFields([FieldProblem(f"{where}.digest", "does not fit what the file says: it was changed")])
    try:
        return Artefact.model_validate(document)
    except ValidationError as error:
        problems = [{**problem, "loc": (where, *problem["loc"])} for problem in error.errors()]
        raise InvalidFields(field_problems(problems, root=where)) from None


def artefact_digest(document: Mapping[str, Any]) -> str:
    """Return the digest over all other members, as artefact.py computes it."""
    content = {name: value for name, value in document.items() if name != "digest"}
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def artefact_load(path: Path) -> Artefact:
    """Read an artefact from a file. Raise OSError or InvalidFields."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise InvalidFields([FieldProblem(path.name, "is no JSON object")])
    return artefact_read(document, where=path.name)


def quality_record(*, actor: Actor, model: str, artefact: Artefact, scales: ScaleSets = "any") -> list[QualityResult]:
    """Store the measured formats that policies know as the newest results of the model.

    A model that is served under several names has results under each. An inconclusive result of a quick or blind run
    does not count where there is another.
    """
    measurements = {
        kv_dtype: measurement for kv_dtype in OFFERED if (measurement := artefact.of(kv_dtype, scales)) is not None
    }
    if not measurements:
        problem = f"has no format that policies know with {scales} scales"
        raise InvalidFields([FieldProblem("artefact.measurements", problem)])
    with audited() as journal:
        results = QualityResult.objects.bulk_create(
            _result(actor, model, artefact, kv_dtype, measurement) for kv_dtype, measurement in measurements.items()
        )
        journal.record(
            actor,
            "quality.record",
            model,
            after={
                "revision": artefact.model_revision,
                "backend": artefact.backend,
                "verdicts": {result.kv_dtype: result.verdict for result in results},
                "digest": artefact.digest,
            },
        )
    return results


def _result(actor: Actor, model: str, artefact: Artefact, kv_dtype: str, measurement: Measurement) -> QualityResult:
    doubt = artefact.doubt if measurement.verdict == "passed" else ""
    verdict = "unresolved" if doubt else measurement.verdict
    inconclusive = {UNTELLING: True} if verdict == "unresolved" and not artefact.is_telling else {}
    return QualityResult(
        model=model,
        revision=artefact.model_revision,
        backend=artefact.backend,
        kv_dtype=kv_dtype,
        verdict=verdict,
        figures=_figures(artefact, measurement) | inconclusive,
        note=(doubt or "; ".join(measurement.shortcomings))[:500],
        created_by=actor.name,
    )


def _figures(artefact: Artefact, measurement: Measurement) -> dict[str, Any]:
    plain_figures = measurement.axes.get("plain")
    return {
        **({} if plain_figures is None else plain_figures.model_dump()),
        "needle": measurement.needle,
        "hit_equals_miss": measurement.hit_equals_miss,
        "token_bytes": measurement.token_bytes,
        "scale_set": measurement.scale_set,
        "device": artefact.device,
        "digest": artefact.digest,
        "shortcomings": measurement.shortcomings[:SHORTCOMINGS_KEPT],
    }


def quality_ensure(*, actor: Actor, model: str, path: Path) -> bool:
    """Store the results from a file and return True, unless this very run is stored already.

    A run stored before must not override results that came later. Raise OSError or InvalidFields.
    """
    artefact = artefact_load(path)
    if quality_is_recorded(model, artefact):
        return False
    quality_record(actor=actor, model=model, artefact=artefact)
    return True


def quality_is_recorded(model: str, artefact: Artefact) -> bool:
    stored = QualityResult.objects.filter(model=model, revision=artefact.model_revision, backend=artefact.backend)
    return stored.filter(figures__digest=artefact.digest).exists()


def quality_override(
    *, actor: Actor, model: str, revision: str, backend: str, kv_dtype: str, note: str
) -> QualityResult:
    """Allow a format without a passing result. The result records who allowed it and why."""
    with audited() as journal:
        result = QualityResult.objects.create(
            model=model,
            revision=revision,
            backend=backend,
            kv_dtype=kv_dtype,
            verdict=QualityResult.Verdict.OVERRIDDEN,
            note=note_check(note),
            created_by=actor.name,
        )
        journal.record(
            actor,
            "quality.override",
            model,
            after={"revision": revision, "backend": backend, "kv_dtype": kv_dtype, "note": note},
        )
    return result


def quality_list(
    *, model: str | None = None, revision: str | None = None, backend: str | None = None, kv_dtype: str | None = None
) -> Sequence[QualityResult]:
    """Return the results that count, filtered."""
    filters = {"model": model, "revision": revision, "backend": backend, "kv_dtype": kv_dtype}
    results = newest_results(None if model is None else [model])
    return [
        result for result in results if all(value in (None, getattr(result, name)) for name, value in filters.items())
    ]
