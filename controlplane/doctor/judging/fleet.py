"""Whether the fleet is well: agents, rollouts, join tokens, alerts; by their views, from REST or the database."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from controlplane.doctor.finding import Finding, broken, counted, note, ok, warning

View = Mapping[str, Any]
MOST_NAMED = 10
MANY_SPOOLED = 100
TOKEN_ENDS_SOON = timedelta(hours=24)
STUCK_AFTER = timedelta(minutes=15)
GRAVE = ("stale", "down", "failed")
TELLING = ("rejected", "unknown_hash", "engine_differs", "behind", "capability_lost", "refusing", "lost_reports")
OF_THE_CLOCK, OF_THE_VERSION = "clock_skew", "version_skew"


def agents(views: Sequence[View]) -> list[Finding]:
    if not views:
        do = 'luminet join-token create "first machines", then luminet agent --join … on a machine: docs/fleet.md'
        return [warning("agents", "No agent has joined: there is nobody to answer requests", do)]
    bad = [finding for one in views for finding in _agent(one)]
    unwell = {finding.name for finding in bad}
    well = [one["id"] for one in views if one["id"] not in unwell]
    found = (
        [
            ok(
                "agents",
                f"{counted(len(well), 'agent or gateway is', 'agents and gateways are')} in sync: {_named(well)}",
            )
        ]
        if well
        else []
    )
    left = len(bad) - MOST_NAMED
    more = (
        [
            note(
                "agents",
                f"{counted(left, 'more finding', 'more findings')} about agents left out",
                "luminet get agents",
            )
        ]
        if left > 0
        else []
    )
    return [*found, *bad[:MOST_NAMED], *more]


def _agent(one: View) -> list[Finding]:
    name, state = str(one["id"]), str(one["state"])
    label = f"The {one['kind']} {name}"
    why = f": {one['why']}" if one.get("why") else ""
    if state in GRAVE:
        do = f"on its machine: luminet doctor --home ITS_HOME, and its log; gone for good? luminet delete agent {name}"
        return [broken(name, f"{label} is {state}{why}", do)]
    if state == "enrolled":
        return [warning(name, f"{label} has enrolled and was never heard of since", "see the log of its machine")]
    if state == "draining":
        return [note(name, f"{label} drains: it takes no new requests", f"luminet resume {name}")]
    return [*_conditions(one, label, name), *_spool(one, label, name)]


def _conditions(one: View, label: str, name: str) -> list[Finding]:
    told = one.get("conditions") or {}
    found = []
    for kind, what in told.items():
        says = f"{label}: {what['why']}"
        if kind in (OF_THE_CLOCK,):
            found.append(warning(name, says, "set the clock of its machine (timedatectl set-ntp true)"))
        elif kind in (OF_THE_VERSION,):
            found.append(warning(name, says, "bring it to the control plane's version: docs/fleet.md"))
        elif kind == "rejected":
            found.append(broken(name, says, f"correct the policy that it cannot hold, or luminet get agent {name}"))
        else:
            found.append(warning(name, says, f"luminet get agent {name}"))
    if not one["in_sync"] and not found and one["state"] == "ready":
        # Between two looks everybody is on the way now and then: it is a condition only once it lasts.
        found.append(note(name, f"{label} is on its way to what it is to hold"))
    return found


def _spool(one: View, label: str, name: str) -> list[Finding]:
    spooled = one.get("spooled") or 0
    if spooled <= MANY_SPOOLED:
        return []
    do = "see the log of its machine, and whether the web answers it quickly"
    return [warning(name, f"{label} has {spooled:,} reports that it could not deliver yet", do)]


def enforcement(views: Sequence[View]) -> list[Finding]:
    """Of policies in force in a group, what none of its engines enforces. An older control plane reports none of it."""
    by_group: dict[str, list[dict[tuple[str, str], str]]] = {}
    for one in views:
        if one["kind"] == "engine" and one.get("models") and "not_enforced" in one:
            refused = {(told["field"], told["value"] or ""): told["why"] for told in one["not_enforced"]}
            by_group.setdefault(str(one["group"]), []).append(refused)
    found = [
        _unenforced(group, setting, refused[0][setting])
        for group, refused in sorted(by_group.items())
        for setting in sorted(set.intersection(*({*one} for one in refused)))
    ]
    if not found and by_group:
        return [ok("enforcement", "No policy field in force is refused by all agents of its group")]
    return found


def _unenforced(group: str, setting: tuple[str, str], why: str) -> Finding:
    what = " ".join(filter(None, setting))
    do = f"publish another {setting[0]}, or start an agent that enforces it: docs/enforcement.md"
    return warning("enforcement", f"{what} is published, and no agent of the group {group} enforces it: {why}", do)


def default_format(model: str, kv_dtype: str, why_not: str | None) -> Finding:
    """`why_not`: no engine that is ready serves a request for it, however well the fleet is."""
    if why_not is None:
        return ok("formats", f"{model} may be served in {kv_dtype}, the fleet's KV format")
    do = f"luminet quality MODEL_FOLDER --device cpu|cuda --publish {model}, or kv_dtype: bf16 in the fleet's policy: "
    do += "docs/production.md"
    return warning("formats", f"Requests for {model} in the fleet's KV format get 400: {why_not}", do)


def rollouts(views: Sequence[View], *, now: datetime) -> list[Finding]:
    """Those that are open."""
    found = [_rollout(one, now) for one in views if one["state"] in ("running", "paused")]
    return found or [ok("rollouts", "No rollout waits for anything")]


def _rollout(one: View, now: datetime) -> Finding:
    what, steer = f"The rollout of {one['place']} revision {one['revision']}", str(one["id"])
    if one["state"] == "paused":
        do = f"luminet rollout resume {steer}, or luminet rollout abort {steer}"
        return warning("rollouts", f"{what} is paused: {one['why']}", do)
    began = moment(one["step_began_at"])
    if began and now - began > STUCK_AFTER + timedelta(seconds=one["bake_seconds"]):
        minutes = (now - began).total_seconds() / 60
        do = f"luminet get rollout {steer}"
        return warning("rollouts", f"{what} has been at one step for {minutes:.0f} min: {one['why']}", do)
    return ok("rollouts", f"{what} is under way: {one['why']}")


def join_tokens(views: Sequence[View], *, now: datetime) -> list[Finding]:
    is_open = [one for one in views if one["state"] == "open"]
    ending = [one for one in is_open if (end := moment(one["expires_at"])) and end - now < TOKEN_ENDS_SOON]
    if not is_open:
        return [ok("join-tokens", "No join token is open: nobody can join")]
    if not ending:
        return [ok("join-tokens", f"{counted(len(is_open), 'join token is', 'join tokens are')} open")]
    first = min(filter(None, (moment(one["expires_at"]) for one in ending)))
    told = f"Of {counted(len(is_open), 'open join token', 'open join tokens')} {len(ending)} will end within a day"
    return [note("join-tokens", f"{told}, the first at {first:%Y-%m-%d %H:%M} UTC; agents that joined stay")]


def alerts(views: Sequence[View], *, now: datetime) -> list[Finding]:
    found = [_alert(one, now) for one in views if one["state"] == "firing"]
    return found[:MOST_NAMED] or [ok("alerts", "No alert fires")]


def _alert(one: View, now: datetime) -> Finding:
    silenced = moment(one.get("silenced_until"))
    told = f"Alert: {one['words']}"
    if one.get("acknowledged") or (silenced and silenced > now):
        return note("alerts", f"{told} Somebody looks after it")
    return warning("alerts", told, one.get("next_step") or f"luminet acknowledge {one['id']}")


def evaluations(age_seconds: float | None, *, do: str) -> Finding:
    """Of rules: who is silent because nobody looks is no good news."""
    if age_seconds is None:
        return note("evaluations", "Alert rules were not evaluated yet")
    if age_seconds <= 120:
        return ok("evaluations", f"Alert rules were evaluated {age_seconds:.0f} s ago")
    return broken("evaluations", f"Alert rules were last evaluated {age_seconds / 60:.0f} min ago", do)


def moment(told: Any) -> datetime | None:
    """As the database has it, or as JSON."""
    if told is None or isinstance(told, datetime):
        return told
    return datetime.fromisoformat(str(told).replace("Z", "+00:00"))


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
