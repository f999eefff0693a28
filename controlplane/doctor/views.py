"""The fleet as REST shows it: read from the database next to a control plane, and over REST from elsewhere."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from controlplane.client.errors import ClientError, Refused
from controlplane.client.rest import Rest
from controlplane.client.shapes import shaped
from controlplane.doctor.context import Context, shared
from controlplane.doctor.database import django_models
from controlplane.doctor.finding import NotExamined
from controlplane.doctor.web import WebSeen, web_see

AN_AGENT = {"id": str, "kind": str, "state": str, "in_sync": bool}
A_ROLLOUT = {"id": str, "place": str, "revision": int, "state": str, "why": str, "bake_seconds": int}
A_RECONCILIATION = {"compared": dict, "differences": list}

View = Mapping[str, Any]


@contextmanager
def fleet_views(context: Context) -> Iterator[tuple["DatabaseViews | RestViews", datetime]]:
    """Yield the views and the current time."""
    if context.place.kind != "remote":
        with django_models(context) as now:
            yield DatabaseViews(now), now
        return
    try:
        yield RestViews(signed_in_client(context)), datetime.now(UTC)
    except ClientError as error:
        raise NotExamined(_reason(error)) from None


def _reason(error: ClientError) -> str:
    """Return why REST refused, worded for people. A token without the right to read is no error."""
    status = error.status if isinstance(error, Refused) else None
    if status == 401:
        return "the token is not known"
    return "this token may not read it; an operator's may" if status in (403, 404) else str(error).splitlines()[0]


@shared
def agent_views(context: Context) -> list[View]:
    with fleet_views(context) as (views, _):
        return views.agents()


@dataclass(frozen=True, slots=True)
class DatabaseViews:
    now: datetime

    def agents(self) -> list[View]:
        from controlplane.fleet.in_force import fields_in_force
        from controlplane.fleet.selectors import agents_living, fleet_cadence_seconds
        from controlplane.fleet.views import agent_view

        cadence, in_force = fleet_cadence_seconds(), fields_in_force()
        living = agents_living().order_by("pk")
        return [agent_view(agent, now=self.now, cadence=cadence, in_force=in_force) for agent in living]

    def rollouts(self) -> list[View]:
        from controlplane.rollouts.selectors import WITH_ITS_PLACE, rollouts_open
        from controlplane.rollouts.views import rollout_view, rollouts_shown

        open_rollouts = rollouts_shown(rollouts_open().select_related(*WITH_ITS_PLACE))
        return [rollout_view(rollout, [], is_operator=True) for rollout in open_rollouts]

    def join_tokens(self) -> list[View]:
        from controlplane.fleet.join_tokens import join_token_state
        from controlplane.fleet.selectors import join_tokens

        return [
            {"state": join_token_state(token, now=self.now), "expires_at": token.expires_at} for token in join_tokens()
        ]

    def alerts(self) -> list[View]:
        from controlplane.alerts.models import Alert
        from controlplane.alerts.selectors import alerts_worst_first
        from controlplane.alerts.views import alert_view

        firing = alerts_worst_first(Alert.objects.select_related("rule"), now=self.now)
        return [{**alert_view(alert), "acknowledged": alert.acknowledged_at is not None} for alert in firing]

    def reconciliation(self) -> View:
        from controlplane.analytics.reconciliations import reconciliation_newest

        newest = reconciliation_newest()
        if newest is None:
            return {"as_of": None}
        return {"as_of": newest.at, "compared": newest.compared, "differences": newest.differences}


@dataclass(frozen=True, slots=True)
class RestViews:
    rest: Rest

    def agents(self) -> list[View]:
        return [shaped(agent, AN_AGENT) for agent in self.rest.pages("/fleet/agents")]

    def rollouts(self) -> list[View]:
        states = ("running", "paused")
        return [shaped(rollout, A_ROLLOUT) for state in states for rollout in self.rest.pages("/rollouts", state=state)]

    def join_tokens(self) -> list[View]:
        return [*self.rest.pages("/fleet/join-tokens")]

    def alerts(self) -> list[View]:
        return [*self.rest.pages("/alerts", state="firing")]

    def reconciliation(self) -> View:
        newest: View = shaped(self.rest.get("/fleet/reconciliation").body, A_RECONCILIATION)
        return newest


def rest_client(context: Context) -> Rest:
    """Return a new client, one for each check, because each has a thread. It never retries: a person waits."""
    return Rest(context.place.url, context.token, timeout=context.place.answer_seconds, sleep=lambda _: None)


def signed_in_client(context: Context) -> Rest:
    answering_web(context)
    if not context.token:
        raise NotExamined("LUMINET_TOKEN is not set")
    return rest_client(context)


@shared
def remote_web(context: Context) -> WebSeen:
    return web_see(f"{context.place.url}/readyz", context.place.answer_seconds)


def answering_web(context: Context) -> WebSeen:
    web_state = remote_web(context)
    if web_state.problem is not None:
        raise NotExamined("the control plane does not answer")
    return web_state


def moment(value: Any) -> datetime | None:
    """Return the time from a database value or from JSON."""
    return value if value is None or isinstance(value, datetime) else datetime.fromisoformat(str(value))
