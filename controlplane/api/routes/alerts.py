"""Operations for alerts (list, acknowledge, silence) and for alert rules."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from django.utils import timezone
from ninja import Query

from controlplane.alerts import selectors, services
from controlplane.alerts.models import Alert
from controlplane.alerts.views import alert_shown, rule_view
from controlplane.api.paging import Cursor, Limit, page
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.alerts import (
    ACKNOWLEDGE,
    AlertAcknowledge,
    AlertRuleCreate,
    AlertRuleMade,
    AlertRuleShown,
    AlertRuleUpdate,
    AlertShown,
    AlertSilence,
    AlertState,
)
from controlplane.api.schemas.base import Page
from tenants import access
from tenants.actor import Actor
from tenants.errors import FieldProblem, InvalidFields, NotPermitted
from tenants.levels import FLEET, Place
from tenants.models.organisations import SLUG_PATTERN

group = Group("Alerts")
InState = Annotated[AlertState | None, Query(None, description="Only those in this state.")]
OfOrganisation = Annotated[
    str | None,
    Query(None, alias="org", pattern=SLUG_PATTERN, description="Only those of this organisation's namespaces."),
]
FLEET_NAME = "fleet"


@group.get("/alerts", access.STATS_READ, Page[AlertShown], refuses=("not-found",))
def alerts_list(
    call: Call, limit: Limit = 50, cursor: Cursor = None, state: InState = None, organisation: OfOrganisation = None
) -> Answer:
    """List alerts, newest first.

    Operators see all of them; an organisation those of its namespaces, a key bound to namespaces those of its own.
    """
    rows = selectors.alerts_visible(call.actor)
    rows = rows if state is None else rows.filter(state=state)
    if organisation is not None:
        rows = rows.filter(organisation=access.organisation_for(call.actor, organisation, access.STATS_READ))

    def show(alerts: Sequence[Alert]) -> list[AlertShown]:
        events = selectors.alerts_events(alerts)
        return AlertShown.each(alert_shown(alert, events[alert.pk], call.actor) for alert in alerts)

    kind = f"alerts:{call.actor.organisation_id}"
    return page(rows, kind=kind, by="number", limit=limit, cursor=cursor, newest_first=True, show=show)


@group.post("/alerts/{alert_id}/acknowledge", access.PUBLISH, AlertShown, status=200)
def alert_acknowledge(call: Call, alert_id: UUID, body: AlertAcknowledge = ACKNOWLEDGE) -> Answer:
    """Say that somebody looks after an alert.

    It stays what it is; who and why is in its history.
    """
    alert = selectors.alert_for(call.actor, alert_id)
    return _alert(services.alert_acknowledge(actor=call.actor, alert=alert, note=body.note), call.actor)


@group.post("/alerts/{alert_id}/silence", access.PUBLISH, AlertShown, status=200)
def alert_silence(call: Call, alert_id: UUID, body: AlertSilence) -> Answer:
    """Send nothing of an alert for a while.

    Nor of what fires at the same place by the same rule meanwhile. It is told when that is over and it still fires. Of
    alerts by rules of the operators only they decide this.
    """
    alert = selectors.alert_for(call.actor, alert_id)
    return _alert(services.alert_silence(actor=call.actor, alert=alert, until=_until(body)), call.actor)


@group.get("/alert-rules", access.READ, Page[AlertRuleShown])
def alert_rules_list(call: Call, limit: Limit = 50, cursor: Cursor = None) -> Answer:
    """List the rules by which there are alerts.

    Operators see all of them, built-in ones included; an organisation those its people made.
    """
    kind = f"alert-rules:{call.actor.organisation_id}"
    rows = selectors.rules_visible(call.actor)
    return page(
        rows,
        kind=kind,
        by="number",
        limit=limit,
        cursor=cursor,
        show=lambda rules: AlertRuleShown.each(map(rule_view, rules)),
    )


@group.post("/alert-rules", access.MANAGE, AlertRuleMade, refuses=("not-found",))
def alert_rule_create(call: Call, body: AlertRuleCreate) -> Answer:
    """Make a rule.

    With a webhook, its secret is shown in this answer and never again.
    """
    scope, agent_group = _place(call.actor, body), None
    if body.group is not None:
        if not call.actor.is_operator:
            raise NotPermitted("Only operators watch agent groups.")
        agent_group = access.group_for(body.group)
    draft = services.Draft(**body.model_dump(exclude={"place", "group"}))
    return _made(services.rule_create(actor=call.actor, draft=draft, place=scope, group=agent_group), status=201)


@group.patch("/alert-rules/{rule_id}", access.MANAGE, AlertRuleMade)
def alert_rule_update(call: Call, rule_id: UUID, body: AlertRuleUpdate) -> Answer:
    """Change a rule, or switch it off.

    Built-in ones, too. What fires by a rule that is switched off is over.
    """
    changes = _given(body)
    rule = selectors.rule_for(call.actor, rule_id)
    updated = services.rule_update(actor=call.actor, rule=rule, changes=changes, rotates_secret=body.rotate_secret)
    return _made(updated, status=200)


@group.delete("/alert-rules/{rule_id}", access.MANAGE, refuses=("conflict",))
def alert_rule_delete(call: Call, rule_id: UUID) -> Answer:
    """Delete a rule that somebody made.

    What it found stays in the history of alerts. Built-in rules can only be switched off.
    """
    services.rule_delete(actor=call.actor, rule=selectors.rule_for(call.actor, rule_id))
    return Answer(status=204)


def _place(actor: Actor, body: AlertRuleCreate) -> Place:
    """Return the scope of a rule. A scope that is not the actor's raises NotFound."""
    if body.place is None or body.place == FLEET_NAME:
        own_organisation = access.organisation_own(actor, access.MANAGE)
        if own_organisation is not None and body.place is not None:
            raise NotPermitted("Only operators watch the fleet.")
        return FLEET if own_organisation is None else Place(own_organisation)
    org, _, slug = body.place.partition("/")
    organisation = access.organisation_for(actor, org, access.MANAGE)
    return Place(organisation, access.namespace_for(actor, organisation, slug) if slug else None)


def _given(body: AlertRuleUpdate) -> dict[str, Any]:
    """Return the given fields. Null is refused, except for `clears_at`, which then follows the threshold."""
    changes = body.model_dump(exclude_unset=True, exclude={"rotate_secret"})
    empty = [name for name, value in changes.items() if value is None and name != "clears_at"]
    if empty:
        raise InvalidFields(FieldProblem(name, "must not be null: leave it out, and it stays") for name in empty)
    return changes


def _until(body: AlertSilence) -> datetime | None:
    if (body.until is None) == (body.seconds is None):
        raise InvalidFields([FieldProblem("until", "give either until or seconds")])
    if body.seconds is None:
        return body.until
    return timezone.now() + timedelta(seconds=body.seconds) if body.seconds else None


def _alert(alert: Alert, actor: Actor) -> Answer:
    events = selectors.alerts_events([alert])
    return Answer(AlertShown.model_validate(alert_shown(alert, events[alert.pk], actor)))


def _made(saved_rule: services.Made, *, status: int) -> Answer:
    view = rule_view(saved_rule.rule) | {"webhook_secret": saved_rule.secret}
    return Answer(AlertRuleMade.model_validate(view), status=status)
