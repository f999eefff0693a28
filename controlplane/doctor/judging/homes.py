"""Whether an agent or a gateway is well, by what lies in its home and by what its own logins can do."""

from collections.abc import Mapping
from typing import Any

from controlplane.doctor.finding import Finding, broken, note, ok, warning

OLD_SPOOL_SECONDS = 300.0
MANY_SPOOLED = 100


def home(told: Mapping[str, Any]) -> list[Finding]:
    """`told` as engine_agent.tools.examining gives it."""
    if told.get("problem"):
        do = "luminet agent --join URL --token TOKEN, or luminet gateway; docs/fleet.md"
        return [broken("credentials", f"This is no agent's home: {told['problem']}", do)]
    kind, agent = told["kind"], told["agent"]
    found = [ok("credentials", f"This is the {kind} {agent} of {told['url']}")]
    if told["runs"]:
        found.append(ok("process", f"A process works in this home for {agent}"))
    else:
        started = "luminet gateway" if kind == "gateway" else "luminet agent"
        found.append(broken("process", f"Nothing runs for {agent}", f"start it: {started} --home {told['home']} …"))
    return found


def spool(told: Mapping[str, Any]) -> list[Finding]:
    count, age = told.get("spooled") or 0, told.get("spool_age_seconds")
    if told.get("spool_problem"):
        do = "nothing: it says so to the control plane when it starts; numbers that were lost stay a gap that is shown"
        return [warning("spool", f"The spool is damaged: {told['spool_problem']}", do)]
    if not count:
        return [ok("spool", "Every report has been delivered")]
    waited = f", untouched for {age / 60:.0f} min" if age and age > OLD_SPOOL_SECONDS else ""
    says = f"{count:,} reports are still to be delivered{waited}"
    if count > MANY_SPOOLED or waited:
        return [warning("spool", says, "see that the control plane answers, and that the process runs")]
    return [ok("spool", says)]


def snapshot(told: Mapping[str, Any]) -> Finding:
    if told.get("has_snapshot"):
        return ok("snapshot", "It holds a snapshot: it goes on without the control plane")
    return note("snapshot", "It holds no snapshot yet: without the control plane it can serve nobody")


def control_plane(told: Mapping[str, Any]) -> Finding:
    """By its own token, at the door of agents."""
    status, problem, url = told.get("status"), told.get("control_plane_problem"), told["url"]
    if problem:
        return broken("control-plane", f"{url} does not answer: {problem}", f"curl -i {url}/healthz")
    if status in (200, 304):
        return ok("control-plane", f"{url} knows its token")
    if status == 401:
        return broken("control-plane", f"{url} does not know its token", "enrol it again with a join token")
    if status == 403:
        do = "luminet join-token create … --agent NAME brings it back, if that is meant"
        return broken("control-plane", "It was taken out of the fleet", do)
    return warning("control-plane", f"{url} answers with status {status}", "see /readyz of the control plane")


def broker(told: Mapping[str, Any]) -> list[Finding]:
    """`broker`: "ok", or what was said; `broker_is_loose`: it could do what is not its own."""
    said = told.get("broker")
    if said is None:
        return []
    if said != "ok":
        do = "see that this machine reaches the broker (LUMINET_AGENT_REDIS_URL of the control plane), and its TLS; "
        do += "started with --broker it goes by that address, which is not looked at here"
        says = f"Its login does not work at the broker that the control plane told it, and it pulls instead: {said}"
        return [warning("broker", says, do)]
    if told.get("broker_is_loose"):
        do = "restart the control plane's worker, whose sweep sets it right"
        return [broken("broker", "Its login at the broker may do more than it should", do)]
    return [ok("broker", "Its login at the broker works, for its own queue alone")]
