"""Operations for GitOps: plan and apply the whole configuration as one document."""

from typing import Annotated

from ninja import Query

from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.config import (
    ConfigApplied,
    ConfigApply,
    ConfigExported,
    ConfigPlan,
    ConfigPlanned,
    ConfigSchema,
    SummaryShown,
)
from controlplane.api.schemas.tenants import Slug
from tenants import access
from tenants.config import apply, plan
from tenants.config.document import config_schema
from tenants.config.export import config_export

group = Group("Configuration")
Organisation = Annotated[Slug | None, Query(None, description="Only this one; left out: all you see.")]
Owner = Annotated[Slug | None, Query(None, description="Only what your file with this `owner` owns, as that file.")]


@group.get("/config", plan.PLAN, ConfigExported, refuses=("not-found",))
def config_get(call: Call, organisation: Organisation = None, owner: Owner = None) -> Answer:
    """Export the configuration as a document.

    What is default or was never set is left out. Planning it changes nothing. An organisation's key gets its own
    organisation, without what only operators may set.
    """
    return Answer(ConfigExported(config_export(actor=call.actor, slug=organisation, owner=owner)))


@group.get("/config/schema", access.ANYONE, ConfigSchema)
def config_schema_get(call: Call) -> Answer:
    """Read the JSON Schema of configuration documents, for editors."""
    return Answer(ConfigSchema(config_schema()))


@group.post("/config/plan", plan.PLAN, ConfigPlanned, status=200, changes_nothing=True)
def config_plan(call: Call, body: ConfigPlan) -> Answer:
    """Say what applying a document would change.

    Changes nothing. `problems` are the reasons for which applying it would be refused, the first 100 of them; more
    namespaces than there is room for are judged no further. An organisation's key may plan for its own organisation.
    """
    planned = plan.config_plan(actor=call.actor, document=body.document, options=body.options)
    return Answer(ConfigPlanned.of(planned, summary=_summary(planned)))


@group.post("/config/apply", apply.APPLY, ConfigApplied, status=200, refuses=("stale",))
def config_apply(call: Call, body: ConfigApply) -> Answer:
    """Apply a document.

    All of it in one transaction, or, for a single error anywhere, nothing. Each change needs the scope it needs alone:
    `policy:write` for policies, `admin` for all else. Applied again, it changes nothing. With `expected_plan` it
    refuses with 412 what is not exactly what was planned. It refuses with 409 to delete more than `max_deletes`.
    """
    applied = apply.config_apply(
        actor=call.actor,
        document=body.document,
        options=body.options,
        expected_hash=body.expected_plan,
        max_deletes=body.max_deletes,
    )
    operation = None if applied.operation is None else applied.operation.pk
    return Answer(ConfigApplied.of(applied.plan, summary=_summary(applied.plan), operation=operation))


def _summary(planned: plan.Plan) -> SummaryShown:
    counts = plan.summary(planned.changes)
    verbs = {verb: counts[verb] for verb in ("create", "change", "delete")}
    return SummaryShown(**verbs, objects_deleted=planned.deletes)
