"""Checks of the fleet: agents, rollouts, join tokens and alerts, as REST shows them."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from controlplane.doctor.context import Context
from controlplane.doctor.database import django_models
from controlplane.doctor.finding import Finding, broken, counted, note, ok, warning
from controlplane.doctor.views import View, agent_views, fleet_views, moment
from engine_agent.contracts.words import listed

MOST_NAMED = 10
MANY_SPOOLED = 100
TOKEN_ENDS_SOON = timedelta(hours=24)
STUCK_AFTER = timedelta(minutes=15)
EVALUATIONS_LATE_SECONDS = 120
GRAVE = ("stale", "down", "failed")


def agents(context: Context) -> Iterator[Finding]:
    views = agent_views(context)
    yield from agent_findings(views)
    yield from enforcement_findings(views)


def agent_findings(views: Sequence[View]) -> Iterator[Finding]:
    if not views:
        do = 'luminet join-token create "first machines", then luminet agent --join … on a machine: docs/fleet.md'
        yield warning("agents", "No agent has joined: there is nobody to answer requests", do)
        return
    bad = [finding for agent in views for finding in _agent_findings(agent)]
    unhealthy = {finding.name for finding in bad}
    healthy = [agent["id"] for agent in views if agent["id"] not in unhealthy]
    if healthy:
        count = counted(len(healthy), "agent or gateway is", "agents and gateways are")
        yield ok("agents", f"{count} in sync: {listed(healthy, MOST_NAMED)}")
    yield from bad[:MOST_NAMED]
    if len(bad) > MOST_NAMED:
        count = counted(len(bad) - MOST_NAMED, "more finding", "more findings")
        yield note("agents", f"{count} about agents left out", "luminet get agents")


def _agent_findings(agent: View) -> list[Finding]:
    name, state = str(agent["id"]), str(agent["state"])
    label = f"The {agent['kind']} {name}"
    if state in GRAVE:
        why = f": {agent['why']}" if agent.get("why") else ""
        do = f"on its machine: luminet doctor --home ITS_HOME, and its log; gone for good? luminet delete agent {name}"
        return [broken(name, f"{label} is {state}{why}", do)]
    if state == "enrolled":
        return [warning(name, f"{label} has enrolled and was never heard of since", "see the log of its machine")]
    if state == "draining":
        return [note(name, f"{label} drains: it takes no new requests", f"luminet resume {name}")]
    findings = [
        _condition(name, kind, f"{label}: {condition['why']}")
        for kind, condition in (agent.get("conditions") or {}).items()
    ]
    if not agent["in_sync"] and not findings and state == "ready":
        # Agents are behind for a moment now and then. It becomes a condition only if it lasts.
        findings.append(note(name, f"{label} is on its way to what it is to hold"))
    if (spooled := agent.get("spooled") or 0) > MANY_SPOOLED:
        do = "see the log of its machine, and whether the web answers it quickly"
        findings.append(warning(name, f"{label} has {spooled:,} reports that it could not deliver yet", do))
    return findings


def _condition(name: str, kind: str, says: str) -> Finding:
    if kind == "rejected":
        return broken(name, says, f"correct the policy that it cannot hold, or luminet get agent {name}")
    if kind == "clock_skew":
        return warning(name, says, "set the clock of its machine (timedatectl set-ntp true)")
    if kind == "version_skew":
        return warning(name, says, "bring it to the control plane's version: docs/fleet.md")
    return warning(name, says, f"luminet get agent {name}")


def enforcement_findings(views: Sequence[View]) -> list[Finding]:
    """Return the values in force that no engine of a group enforces. An older control plane reports no enforcement."""
    by_group: dict[str, list[dict[tuple[str, str], str]]] = {}
    for agent in views:
        if agent["kind"] == "engine" and agent.get("models") and "not_enforced" in agent:
            refused = {(field["field"], field["value"] or ""): field["why"] for field in agent["not_enforced"]}
            by_group.setdefault(str(agent["group"]), []).append(refused)
    findings = [
        _unenforced(group, setting, refused[0][setting])
        for group, refused in sorted(by_group.items())
        for setting in sorted(set.intersection(*({*settings} for settings in refused)))
    ]
    if not findings and by_group:
        return [ok("enforcement", "No policy field in force is refused by all agents of its group")]
    return findings


def _unenforced(group: str, setting: tuple[str, str], why: str) -> Finding:
    value = " ".join(filter(None, setting))
    do = f"publish another {setting[0]}, or start an agent that enforces it: docs/enforcement.md"
    return warning("enforcement", f"{value} is published, and no agent of the group {group} enforces it: {why}", do)


def formats(context: Context) -> Iterator[Finding]:
    """Check that engines can serve requests that name no KV format, assuming that only the fleet's level sets one."""
    with django_models(context):
        from controlplane.fleet.quality import refused_formats, served_by
        from controlplane.fleet.selectors import agents_living
        from tenants.models import PolicyLevel
        from tenants.policy import effective_values

        engines = agents_living().filter(kind="engine").order_by("pk").values_list("pk", "about")
        served = [row for agent, about in engines if about.get("address") for row in served_by(agent, about)]
        refused = refused_formats(served)
        levels = PolicyLevel.objects.filter(kind=PolicyLevel.Kind.FLEET).values_list("policy", flat=True)
        chain = [*levels] or [{}]
    for model in sorted({row.model for row in served}):
        kv_dtype = effective_values(chain, model)["kv_dtype"]
        is_supported = any(kv_dtype in row.formats for row in served if row.model == model)
        why_not = refused.get(model, {}).get(kv_dtype) or (
            None if is_supported else f"no engine of it can do {kv_dtype}"
        )
        yield format_finding(model, kv_dtype, why_not)


def format_finding(model: str, kv_dtype: str, why_not: str | None) -> Finding:
    """Evaluate the fleet's format for a model. `why_not`: why no ready engine serves it, even in a healthy fleet."""
    if why_not is None:
        return ok("formats", f"{model} may be served in {kv_dtype}, the fleet's KV format")
    do = f"luminet quality MODEL_FOLDER --device cpu|cuda --publish {model}, or kv_dtype: bf16 in the fleet's policy: "
    do += "docs/production.md"
    return warning("formats", f"Requests for {model} in the fleet's KV format get 400: {why_not}", do)


def rollouts(context: Context) -> Iterator[Finding]:
    with fleet_views(context) as (views, now):
        yield from rollout_findings(views.rollouts(), now=now)


def rollout_findings(views: Sequence[View], *, now: datetime) -> list[Finding]:
    """Evaluate the open rollouts."""
    findings = [_rollout(view, now) for view in views if view["state"] in ("running", "paused")]
    return findings or [ok("rollouts", "No rollout waits for anything")]


def _rollout(rollout: View, now: datetime) -> Finding:
    label, steer = f"The rollout of {rollout['place']} revision {rollout['revision']}", str(rollout["id"])
    if rollout["state"] == "paused":
        do = f"luminet rollout resume {steer}, or luminet rollout abort {steer}"
        return warning("rollouts", f"{label} is paused: {rollout['why']}", do)
    began = moment(rollout["step_began_at"])
    if began and now - began > STUCK_AFTER + timedelta(seconds=rollout["bake_seconds"]):
        minutes = (now - began).total_seconds() / 60
        says = f"{label} has been at one step for {minutes:.0f} min: {rollout['why']}"
        return warning("rollouts", says, f"luminet get rollout {steer}")
    return ok("rollouts", f"{label} is under way: {rollout['why']}")


def join_tokens(context: Context) -> Iterator[Finding]:
    with fleet_views(context) as (views, now):
        yield join_token_finding(views.join_tokens(), now=now)


def join_token_finding(views: Sequence[View], *, now: datetime) -> Finding:
    ends = [moment(token["expires_at"]) for token in views if token["state"] == "open"]
    ending_soon = [end for end in ends if end and end - now < TOKEN_ENDS_SOON]
    if not ends:
        return ok("join-tokens", "No join token is open: nobody can join")
    if not ending_soon:
        return ok("join-tokens", f"{counted(len(ends), 'join token is', 'join tokens are')} open")
    says = f"Of {counted(len(ends), 'open join token', 'open join tokens')} {len(ending_soon)} will end within a day"
    return note("join-tokens", f"{says}, the first at {min(ending_soon):%Y-%m-%d %H:%M} UTC; agents that joined stay")


def alerts(context: Context) -> Iterator[Finding]:
    with fleet_views(context) as (views, now):
        yield from alert_findings(views.alerts(), now=now)
        if context.place.kind != "remote":
            yield _evaluations(now, do=context.place.worker_advice)


def alert_findings(views: Sequence[View], *, now: datetime) -> list[Finding]:
    findings = [_alert(alert, now) for alert in views if alert["state"] == "firing"]
    return findings[:MOST_NAMED] or [ok("alerts", "No alert fires")]


def _alert(alert: View, now: datetime) -> Finding:
    silenced = moment(alert.get("silenced_until"))
    says = f"Alert: {alert['words']}"
    if alert.get("acknowledged") or (silenced and silenced > now):
        return note("alerts", f"{says} Somebody looks after it")
    return warning("alerts", says, alert.get("next_step") or f"luminet acknowledge {alert['id']}")


def _evaluations(now: datetime, *, do: str) -> Finding:
    """Check that alert rules are evaluated, since silence means nothing otherwise."""
    from controlplane.alerts.selectors import evaluation_newest

    newest = evaluation_newest()
    if newest is None:
        return note("evaluations", "Alert rules were not evaluated yet")
    seconds = (now - newest.at).total_seconds()
    if seconds <= EVALUATIONS_LATE_SECONDS:
        return ok("evaluations", f"Alert rules were evaluated {seconds:.0f} s ago")
    return broken("evaluations", f"Alert rules were last evaluated {seconds / 60:.0f} min ago", do)
