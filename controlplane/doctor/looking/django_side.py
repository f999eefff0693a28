"""What is read out of the database with the application's own selectors. Nothing here writes.

Loaded by the first check that wants it, and only where the database answers: Django's settings want every variable.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from controlplane.doctor.finding import Finding, NotExamined
from controlplane.doctor.judging import fleet, guarding, numbers, reaching
from controlplane.doctor.place import Place

KEYS_OPENED = 20


def django_ready(place: Place) -> None:
    """Once for the process."""
    if place.environment is None:
        raise NotExamined("settings cannot be read")
    os.environ.update(place.environ)
    os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings.django"
    os.environ["LUMINET_LOG_LEVEL"] = "ERROR"  # what goes wrong is a finding here
    import django

    django.setup()


@contextmanager
def _asking() -> Iterator[datetime]:
    """Now, by this machine's clock; the thread's connection is given back."""
    from django.db import connection

    try:
        yield datetime.now(UTC)
    finally:
        connection.close()


def migrations(do: str) -> Iterator[Finding]:
    from django.db import connection

    from controlplane.database.schema import applied, standing_of

    with _asking(), connection.cursor() as cursor:
        found = standing_of(applied(cursor))
        yield from numbers.migrations(found.missing, found.beyond, found.taken, do=do)


def pulse(do: str) -> Iterator[Finding]:
    from controlplane.live.selectors import clock_now, pulse_latest

    with _asking():
        newest, now = pulse_latest(), clock_now()
        yield reaching.pulse(None if newest is None else (now - newest.recorded_at).total_seconds(), do=do)


def master_key() -> Iterator[Finding]:
    from tenants.crypto import Unreadable, is_sealed_anew
    from tenants.models import NamespaceKey
    from tenants.services.namespace_keys import key_open

    opened = closed = last = 0
    with _asking():
        newest = NamespaceKey.objects.filter(retired_at=None).exclude(sealed=None).order_by("-pk")[:KEYS_OPENED]
        for one in newest:
            if one.sealed is None:
                continue
            try:
                key_open(one.namespace_id, one.epoch, one.sealed)
            except Unreadable:
                closed += 1
            else:
                opened += 1
                last += not is_sealed_anew(one.sealed)
        yield guarding.master_key(opened, closed, last)


def agent_views() -> list[fleet.View]:
    from controlplane.fleet import selectors
    from controlplane.fleet.in_force import fields_in_force
    from controlplane.fleet.views import agent_view

    with _asking() as now:
        cadence, in_force = selectors.fleet_cadence_seconds(), fields_in_force()
        living = selectors.agents_living().order_by("pk")
        return [agent_view(one, now=now, cadence=cadence, in_force=in_force) for one in living]


def login_names() -> list[str]:
    from controlplane.fleet import selectors
    from controlplane.fleet.broker import login_name

    with _asking():
        return [login_name(str(pk)) for pk in selectors.agents_living().values_list("pk", flat=True)]


def formats() -> Iterator[Finding]:
    """What a request gets that names no format, where nobody says otherwise, of engines that gateways reach."""
    from controlplane.fleet.quality import refused_formats, served_by
    from controlplane.fleet.selectors import agents_living
    from tenants.models import PolicyLevel
    from tenants.policy import effective_values

    with _asking():
        engines = agents_living().filter(kind="engine").order_by("pk").values_list("pk", "about")
        served = [one for agent, about in engines if about.get("address") for one in served_by(agent, about)]
        refused = refused_formats(served)
        levels = PolicyLevel.objects.filter(kind=PolicyLevel.Kind.FLEET).values_list("policy", flat=True)
        chain = [*levels] or [{}]
    for model in sorted({one.model for one in served}):
        wanted = effective_values(chain, model)["kv_dtype"]
        can = any(wanted in one.formats for one in served if one.model == model)
        why = refused.get(model, {}).get(wanted) or (None if can else f"no engine of it can do {wanted}")
        yield fleet.default_format(model, wanted, why)


def rollouts() -> Iterator[Finding]:
    from controlplane.rollouts.selectors import WITH_ITS_PLACE, rollouts_open
    from controlplane.rollouts.views import rollout_view, rollouts_shown

    with _asking() as now:
        open_ = rollouts_shown(rollouts_open().select_related(*WITH_ITS_PLACE))
        yield from fleet.rollouts([rollout_view(one, [], is_operator=True) for one in open_], now=now)


def join_tokens() -> Iterator[Finding]:
    from controlplane.fleet.join_tokens import join_token_state
    from controlplane.fleet.selectors import join_tokens as tokens

    with _asking() as now:
        views = [{"state": join_token_state(one, now=now), "expires_at": one.expires_at} for one in tokens()]
        yield from fleet.join_tokens(views, now=now)


def alerts(do: str) -> Iterator[Finding]:
    from controlplane.alerts.models import Alert
    from controlplane.alerts.selectors import alerts_worst_first, evaluation_newest
    from controlplane.alerts.views import alert_view

    with _asking() as now:
        firing = alerts_worst_first(Alert.objects.select_related("rule"), now=now)
        views: list[dict[str, Any]] = [
            {**alert_view(one), "acknowledged": one.acknowledged_at is not None} for one in firing
        ]
        newest = evaluation_newest()
        yield from fleet.alerts(views, now=now)
        yield fleet.evaluations(None if newest is None else (now - newest.at).total_seconds(), do=do)


def reconciliation(do: str) -> Iterator[Finding]:
    from controlplane.analytics.reconciliations import reconciliation_newest

    with _asking() as now:
        newest = reconciliation_newest()
        told: dict[str, Any] = {"as_of": None}
        if newest is not None:
            told = {"as_of": newest.at, "compared": newest.compared, "differences": newest.differences}
        yield from numbers.reconciliation(told, now=now, do=do)


def days(do: str) -> Iterator[Finding]:
    from controlplane.analytics.partitions import PARENTS, partitions

    with _asking() as now:
        yield from numbers.days({one: partitions(one) for one in PARENTS}, now.date(), do=do)


def trail() -> Iterator[Finding]:
    from tenants.audit import audit_verify

    with _asking():
        verdict = audit_verify()
        yield numbers.trail(verdict.records, verdict.problem)


def owner() -> Iterator[Finding]:
    from django.db import connection

    from controlplane.database.roles import tables_owned

    with _asking(), connection.cursor() as cursor:
        yield guarding.owner(tables_owned(cursor))


def anchors() -> Iterator[Finding]:
    from django.conf import settings

    from controlplane.alerts.anchoring import anchors_seen

    file = settings.ENVIRONMENT.anchors.file
    with _asking() as now:
        if file is None:
            yield guarding.no_anchors()
            return
        seen = anchors_seen(file)
        age = 0.0 if seen.since is None else (now - seen.since).total_seconds()
        yield guarding.anchors(file, seen.problems, age, has_begun=seen.has_begun)
