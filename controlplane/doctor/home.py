"""Checks of an agent or gateway: the files in its home, and its logins."""

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.doctor import data_plane
from controlplane.doctor.context import Context, shared
from controlplane.doctor.finding import Finding, NotExamined, broken, note, ok, warning

OLD_SPOOL_SECONDS = 300.0
MANY_SPOOLED = 100
SOONER = 0.9  # so that its process ends before the checks that wait for it time out
Home = Mapping[str, Any]  # as engine_agent.tools.examining reports it


@shared
def home_facts(context: Context) -> Home:
    return data_plane.facts("home", str(context.place.home), seconds=context.place.seconds * SOONER)


def home(context: Context) -> Iterator[Finding]:
    facts = home_facts(context)
    yield from home_findings(facts)
    if facts.get("problem"):
        return
    if facts.get("has_snapshot"):
        yield ok("snapshot", "It holds a snapshot: it goes on without the control plane")
    else:
        yield note("snapshot", "It holds no snapshot yet: without the control plane it can serve nobody")
    yield spool_finding(facts)


def home_findings(facts: Home) -> Iterator[Finding]:
    if facts.get("problem"):
        do = "luminet agent --join URL --token TOKEN, or luminet gateway; docs/fleet.md"
        yield broken("credentials", f"This is no agent's home: {facts['problem']}", do)
        return
    kind, agent = facts["kind"], facts["agent"]
    yield ok("credentials", f"This is the {kind} {agent} of {facts['url']}")
    if facts["runs"]:
        yield ok("process", f"A process works in this home for {agent}")
    else:
        command = "luminet gateway" if kind == "gateway" else "luminet agent"
        yield broken("process", f"Nothing runs for {agent}", f"start it: {command} --home {facts['home']} …")


def spool_finding(facts: Home) -> Finding:
    count, age = facts.get("spooled") or 0, facts.get("spool_age_seconds")
    if facts.get("spool_problem"):
        do = "nothing: it says so to the control plane when it starts; numbers that were lost stay a gap that is shown"
        return warning("spool", f"The spool is damaged: {facts['spool_problem']}", do)
    if not count:
        return ok("spool", "Every report has been delivered")
    waited = f", untouched for {age / 60:.0f} min" if age and age > OLD_SPOOL_SECONDS else ""
    says = f"{count:,} reports are still to be delivered{waited}"
    if count > MANY_SPOOLED or waited:
        return warning("spool", says, "see that the control plane answers, and that the process runs")
    return ok("spool", says)


def logins(context: Context) -> Iterator[Finding]:
    facts = home_facts(context)
    if facts.get("problem"):
        raise NotExamined("there are no credentials here")
    yield control_plane_finding(facts)
    yield from broker_findings(facts)


def control_plane_finding(facts: Home) -> Finding:
    """Evaluate how the agent API answers the agent's token."""
    name, url, status = "control-plane", facts["url"], facts.get("status")
    if problem := facts.get("control_plane_problem"):
        return broken(name, f"{url} does not answer: {problem}", f"curl -i {url}/healthz")
    if status in (200, 304):
        return ok(name, f"{url} knows its token")
    if status == 401:
        return broken(name, f"{url} does not know its token", "enrol it again with a join token")
    if status == 403:
        do = "luminet join-token create … --agent NAME brings it back, if that is meant"
        return broken(name, "It was taken out of the fleet", do)
    return warning(name, f"{url} answers with status {status}", "see /readyz of the control plane")


def broker_findings(facts: Home) -> Iterator[Finding]:
    """Evaluate the login at the broker. `broker`: "ok", or why it fails; `broker_is_loose`: it has too many rights."""
    state = facts.get("broker")
    if state is None:
        return
    if state != "ok":
        do = "see that this machine reaches the broker (LUMINET_AGENT_REDIS_URL of the control plane), and its TLS; "
        do += "started with --broker it goes by that address, which is not looked at here"
        says = "Its login does not work at the broker that the control plane told it, and it pulls instead"
        yield warning("broker", f"{says}: {state}", do)
    elif facts.get("broker_is_loose"):
        do = "restart the control plane's worker, whose sweep sets it right"
        yield broken("broker", "Its login at the broker may do more than it should", do)
    else:
        yield ok("broker", "Its login at the broker works, for its own queue alone")
