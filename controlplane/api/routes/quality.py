"""Operations for the KV formats that may carry traffic: quality results, and operators' overrides."""

from typing import Annotated

from ninja import Query

from controlplane.api.paging import Cursor, Limit, page_of
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.base import Page
from controlplane.api.schemas.quality import QualityOverride, QualityRecord, QualityRecorded, QualityShown
from controlplane.fleet import quality_results
from controlplane.fleet.models import QualityResult
from controlplane.fleet.quality import LET_THROUGH
from kernels.formats import BASELINE
from tenants import access
from tenants.actor import Actor
from tenants.policy import KvDtype, ModelName

group = Group("Quality")
OfModel = Annotated[ModelName | None, Query(None, description="Only of this model.")]
OfRevision = Annotated[str | None, Query(None, max_length=100, description="Only of this revision.")]
OnBackend = Annotated[str | None, Query(None, max_length=20, description="Only on this backend.")]
OfFormat = Annotated[KvDtype | None, Query(None, description="Only of this format.")]


@group.get("/quality", access.READ, Page[QualityShown])
def quality_list(
    call: Call,
    limit: Limit = 50,
    cursor: Cursor = None,
    model: OfModel = None,
    revision: OfRevision = None,
    backend: OnBackend = None,
    kv_dtype: OfFormat = None,
) -> Answer:
    """List the results that count.

    The newest of each format on a model's revision and backend. `bf16` may always be served.
    """
    stored_results = quality_results.quality_list(model=model, revision=revision, backend=backend, kv_dtype=kv_dtype)
    by_name = {
        f"{stored_result.model}/{stored_result.revision}/{stored_result.backend}/{stored_result.kv_dtype}": _shown(
            stored_result, call.actor
        )
        for stored_result in stored_results
    }
    return page_of(by_name, kind="quality", limit=limit, cursor=cursor)


@group.post("/quality", access.OPERATE, QualityRecorded)
def quality_record(call: Call, body: QualityRecord) -> Answer:
    """Store what a run of the quality suite found.

    Formats that passed may be served from then on, those that did not may not any more. A quick run, or one whose
    control was not rejected, lets nothing through; what it leaves open stays as it was decided before. Operators only.
    """
    artefact = quality_results.artefact_read(body.artefact)
    stored_results = quality_results.quality_record(
        actor=call.actor, model=body.model, artefact=artefact, scales=body.scales
    )
    return Answer(
        QualityRecorded(results=[_shown(stored_result, call.actor) for stored_result in stored_results]), status=201
    )


@group.post("/quality/override", access.OPERATE, QualityShown)
def quality_override(call: Call, body: QualityOverride) -> Answer:
    """Let a format through without a passing result.

    Until the next result of it. Recorded with who did it and why. Operators only.
    """
    override = quality_results.quality_override(
        actor=call.actor,
        model=body.model,
        revision=body.revision,
        backend=body.backend,
        kv_dtype=body.kv_dtype,
        note=body.note,
    )
    return Answer(_shown(override, call.actor), status=201)


def _shown(stored_result: QualityResult, actor: Actor) -> QualityShown:
    is_word = stored_result.verdict == QualityResult.Verdict.OVERRIDDEN  # a note from one operator to others
    return QualityShown.of(
        stored_result,
        verdict=str(stored_result.verdict),
        may_serve=stored_result.kv_dtype == BASELINE or stored_result.verdict in LET_THROUGH,
        note=stored_result.note if actor.is_operator or not is_word else "",
        created_by=stored_result.created_by if actor.is_operator else None,
    )
