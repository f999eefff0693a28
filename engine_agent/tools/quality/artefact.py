"""The result of a quality run, as a file that other programs accept or refuse. Standard library only.

`quality-BACKEND.json` is stored next to the model. For one model revision on one backend, it contains the quality loss
of each KV format with each scale set, and whether that passes. Before a dtype may serve traffic, the deciding program
loads the file with its revision and backend. A file of another model or backend, with an older schema or changed by
hand is refused by name.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

from engine_agent.tools.errors import ToolError
from engine_agent.tools.quality.gates import Verdict
from engine_agent.tools.report import write_atomically
from kernels.formats import FLOOR

SCHEMA = "luminet/quality/1"
TEXTS = ("findings", "shortcomings")
VERDICTS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True)
class Figures:
    """One reading compared with its reference.

    Shares are fractions of 1, divergences are in nats, `low` and `high` are 95 % intervals. Per token, unless a name
    says byte.
    """

    perplexity: float
    delta_percent: float
    delta_percent_low: float
    delta_percent_high: float
    divergence: float
    divergence_low: float
    divergence_high: float
    byte_delta_percent: float  # the same loss per byte of text, comparable between tokenizers
    byte_delta_percent_low: float
    byte_delta_percent_high: float
    byte_divergence: float
    byte_divergence_low: float
    byte_divergence_high: float
    divergence_p99: float
    divergence_decoded: float  # of the tokens that were read one at a time
    agreement: float
    documents: int
    tokens: int  # predicted


@dataclass(frozen=True, slots=True)
class Measurement:
    """One format with one scale set."""

    kv_format: str
    scale_set: str  # its digest; "" for neutral scales
    reference: str
    token_bytes: int  # over all layers
    axes: dict[str, Figures]  # "plain", and the changes of keys
    needle: dict[str, float]  # by the cosine between near-duplicates: the retrieved share
    hit_equals_miss: bool
    verdict: Verdict
    findings: tuple[str, ...]  # every figure with its bound
    shortcomings: tuple[str, ...]  # the findings that did not pass

    @property
    def is_calibrated(self) -> bool:
        return bool(self.scale_set)


@dataclass(frozen=True, slots=True)
class Artefact:
    model_revision: str
    backend: str  # "torch-cpu" or "triton-cuda"
    device: str
    versions: dict[str, str]
    text_sha256: str
    documents: int
    window_tokens: int
    calibration_tokens: int
    bytes_per_token: float
    is_quick: bool  # too little text for a decision
    is_control_rejected: bool
    seconds: float
    measurements: tuple[Measurement, ...]

    def of(self, kv_format: str, scale_set: str = "") -> Measurement | None:
        """Return the measurement of a format and scale set, or None."""
        matching = (
            measurement
            for measurement in self.measurements
            if (measurement.kv_format, measurement.scale_set) == (kv_format, scale_set)
        )
        return next(matching, None)

    def may_serve(self, kv_format: str, scale_set: str = "") -> bool:
        """Return whether this run allows a format to serve traffic."""
        measurement = self.of(kv_format, scale_set)
        is_sound = self.is_control_rejected and self.is_floor_passed and not self.is_quick
        return is_sound and measurement is not None and measurement.verdict == "passed"

    @property
    def is_floor_passed(self) -> bool:
        """Return whether fp32 and bf16 passed.

        Other formats are compared with bf16 through the same pages, so only these two reveal an error that affects all
        formats alike.
        """
        floor = [self.of(name) for name in FLOOR]
        return all(measurement is not None and measurement.verdict == "passed" for measurement in floor)


def file_name(backend: str) -> str:
    """Return the file's name, one for each backend: results on a CPU say nothing about a GPU's kernels."""
    return f"quality-{backend}.json"


def document(artefact: Artefact) -> dict[str, Any]:
    """Return the artefact as JSON, with a digest over everything else."""
    content = {"schema": SCHEMA, **asdict(artefact)}
    content["measurements"] = [
        {**measurement, **{name: list(measurement[name]) for name in TEXTS}} for measurement in content["measurements"]
    ]
    return {**content, "digest": _digest(content)}


def save_artefact(artefact: Artefact, folder: Path) -> Path:
    """Write the artefact next to the model and return its path. Raises OSError."""
    path = folder / file_name(artefact.backend)
    write_atomically(path, (json.dumps(document(artefact), indent=1, allow_nan=False) + "\n").encode())
    return path


def load_artefact(folder: Path, *, backend: str, model_revision: str | None = None) -> Artefact:
    """Return the artefact. Raises OSError, or ToolError if it was changed, is invalid, or is another backend's or
    model's.
    """
    path = folder / file_name(backend)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise ToolError(path, "", f"is no JSON: {problem}") from problem
    if not isinstance(content, dict):
        raise ToolError(path, "", "is no JSON object")
    digest = content.pop("digest", None)
    if content.pop("schema", None) != SCHEMA:
        raise ToolError(path, "schema", f"is not {SCHEMA}")
    if digest != _digest({"schema": SCHEMA, **content}):
        raise ToolError(path, "digest", "does not fit what the file says: it was changed after it was written")
    artefact = _Reader(path).artefact(content)
    if artefact.backend != backend:
        raise ToolError(path, "backend", f"expected {backend}, found {artefact.backend}")
    if model_revision is not None and artefact.model_revision != model_revision:
        raise ToolError(path, "model_revision", f"expected {model_revision}, found {artefact.model_revision}")
    return artefact


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class _Reader:
    """Builds dataclasses from JSON; every error names the file and the field."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def artefact(self, content: object) -> Artefact:
        checked = self._fields("", content, Artefact)
        entries = self._kept("measurements", checked["measurements"], list)
        rows = [self._measurement(f"measurements[{index}]", entry) for index, entry in enumerate(entries)]
        versions = self._kept("versions", checked["versions"], dict)
        for name, version in versions.items():
            self._kept(f"versions.{name}", version, str)
        return Artefact(**{**checked, "measurements": tuple(rows)})

    def _measurement(self, field_path: str, content: object) -> Measurement:
        checked = self._fields(field_path, content, Measurement)
        axes = self._kept(f"{field_path}.axes", checked["axes"], dict)
        for name, share in self._kept(f"{field_path}.needle", checked["needle"], dict).items():
            self._kept(f"{field_path}.needle.{name}", share, float)
        if checked["verdict"] not in VERDICTS:
            raise ToolError(
                self._path, f"{field_path}.verdict", f"{checked['verdict']!r} is none of {', '.join(VERDICTS)}"
            )
        texts = {name: self._texts(f"{field_path}.{name}", checked[name]) for name in TEXTS}
        figures = {
            name: Figures(**self._fields(f"{field_path}.axes.{name}", axis, Figures)) for name, axis in axes.items()
        }
        return Measurement(**{**checked, "axes": figures, **texts})

    def _texts(self, field_path: str, content: object) -> tuple[str, ...]:
        return tuple(self._kept(field_path, text, str) for text in self._kept(field_path, content, list))

    def _fields(self, field_path: str, content: object, kind: type[Artefact | Measurement | Figures]) -> dict[str, Any]:
        """Return exactly the fields of `kind`, with simple ones checked for their type."""
        checked = self._kept(field_path, content, dict)
        prefix = f"{field_path}." if field_path else ""
        for field in fields(kind):
            if field.name not in checked:
                raise ToolError(self._path, prefix + field.name, "is missing")
            if field.type in (str, int, float, bool):
                self._kept(prefix + field.name, checked[field.name], field.type)
        if unknown_fields := checked.keys() - {field.name for field in fields(kind)}:
            raise ToolError(self._path, prefix + min(unknown_fields), f"is no field of {SCHEMA}")
        return dict(checked)

    def _kept(self, field_path: str, value: Any, kind: type) -> Any:
        is_right = type(value) is kind or (kind is float and type(value) is int)
        if not is_right or (kind is float and not math.isfinite(value)):
            raise ToolError(self._path, field_path, f"{value!r} is no {kind.__name__}")
        return value
