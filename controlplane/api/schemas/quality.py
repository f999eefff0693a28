"""Bodies for quality results: which KV formats may carry traffic, and why the others may not."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from controlplane.api.schemas.base import Given, Taken, example
from controlplane.api.schemas.tenants import WHEN
from controlplane.fleet.quality_results import artefact_digest
from tenants.policy import KvDtype, ModelName

REVISION = "e8f2213dbc70f0c1327c427bc8363facddb6b6322922b73364d3ac5a08915d33"
Revision = Annotated[
    str, StringConstraints(min_length=1, max_length=100, pattern=r"^[\x21-\x7e]+$"), Field(description="Its revision.")
]
Backend = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,19}$"),
    Field(description="What computes: `torch-cpu`, `triton-cuda`, `vllm-cpu`, `vllm-cuda`."),
]
Verdict = Annotated[
    Literal["passed", "failed", "unresolved", "overridden"],
    Field(description="`overridden`: an operator lets it through. Only that and `passed` reach traffic."),
]
RESULT = {
    "model": "luminet-demo",
    "revision": REVISION,
    "backend": "torch-cpu",
    "kv_dtype": "int8",
    "verdict": "passed",
    "may_serve": True,
    "figures": {"byte_delta_percent": 0.006, "byte_divergence": 4.1e-05, "documents": 21},
    "note": "",
    "created_by": "operator@luminet.example (ci)",
    "created_at": WHEN,
}


# As short as possible; the suite writes more about each format, and more formats.
ARTEFACT: dict[str, Any] = {
    "schema": "luminet/quality/1",
    "model_revision": REVISION,
    "backend": "torch-cpu",
    "device": "AVX512, 2 cores",
    "documents": 21,
    "is_quick": False,
    "is_control_rejected": True,
    "measurements": [
        {
            "kv_format": "int8",
            "scale_set": "",
            "token_bytes": 1152,
            "axes": {},
            "needle": {"0.9": 1.0},
            "hit_equals_miss": True,
            "verdict": "passed",
            "shortcomings": [],
        }
    ],
}
ARTEFACT["digest"] = artefact_digest(ARTEFACT)


class QualityShown(Given):
    """The newest result of one format on a model's revision and backend: the one that counts."""

    model_config = ConfigDict(json_schema_extra=example(**RESULT))

    model: str
    revision: str
    backend: str
    kv_dtype: KvDtype
    verdict: Verdict
    may_serve: bool
    figures: dict[str, Any] = Field(description="Of what was measured: losses in percent and nats, by byte and token.")
    note: str = Field(description="What fell short; of an override the operator's reason, for operators alone.")
    created_by: str | None = Field(description="For operators; null for others.")
    created_at: datetime


class QualityRecord(Taken):
    """A file that `luminet quality` has written, for the name a model is served under."""

    model_config = ConfigDict(json_schema_extra=example(model="luminet-demo", artefact=ARTEFACT, scales="any"))

    model: ModelName = Field(description="The name agents serve the model under.")
    artefact: dict[str, Any] = Field(description="The file as it is: one that was changed is refused.")
    scales: Literal["any", "neutral", "calibrated"] = Field(
        default="any", description="Which scale sets are served; `any`: the worse of what was measured counts."
    )


class QualityRecorded(Given):
    model_config = ConfigDict(json_schema_extra=example(results=[RESULT]))

    results: list[QualityShown]


class QualityOverride(Taken):
    """Lets a format through without a passing result."""

    model_config = ConfigDict(
        json_schema_extra=example(
            model="qwen3-8b",
            revision=REVISION,
            backend="triton-cuda",
            kv_dtype="fp8_e4m3",
            note="Judged by our own evaluation, ticket 4712",
        )
    )

    model: ModelName = Field(description="The name agents serve the model under.")
    revision: Revision
    backend: Backend
    kv_dtype: KvDtype = Field(description="The format that may be served from now on.")
    note: Annotated[str, StringConstraints(min_length=1, max_length=500)] = Field(description="Why; it is recorded.")
