"""Whether parts answer, and what they say of themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.doctor.finding import Finding, broken, counted, note, ok, warning

PULSE_LATE_SECONDS, PULSE_DEAD_SECONDS = 10.0, 60.0
BUSY_SHARE = 0.9
SLOW_MILLISECONDS = 100.0
CERTIFICATE_WARN_DAYS = 21
NO_EVICTION = "noeviction"


@dataclass(frozen=True, slots=True)
class DatabaseSeen:
    """`problem`: why it did not answer; the rest is nothing then."""

    problem: str | None = None
    milliseconds: float = 0.0
    version: int = 0
    ahead_seconds: float = 0.0  # its clock, of ours
    connections: int = 0
    most_connections: int = 0
    is_replica: bool = False


@dataclass(frozen=True, slots=True)
class RedisSeen:
    problem: str | None = None
    milliseconds: float = 0.0
    version: str = ""
    policy: str = ""  # what it does when its memory is full
    used_bytes: int = 0
    most_bytes: int = 0
    acl_problem: str | None = None  # why this login may not look after others
    users: Sequence[str] = ()
    is_open: bool = False  # to whoever reaches it, without a password
    loose: Sequence[str] = field(default=())  # agents' logins that may do more than is theirs


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about the stores, which depends on who runs them."""

    database: str
    redis: str


def database(seen: DatabaseSeen, advice: Advice) -> list[Finding]:
    if seen.problem is not None:
        return [broken("database", f"The database does not answer: {seen.problem}", advice.database)]
    found = [ok("database", f"The database answers in {seen.milliseconds:.0f} ms")]
    if seen.milliseconds > SLOW_MILLISECONDS:
        do = "put database and control plane into one network, or look what the server is busy with"
        found = [warning("database", f"The database takes {seen.milliseconds:.0f} ms for an empty question", do)]
    if seen.is_replica:
        do = "point LUMINET_DATABASE_URL at the primary"
        found.append(broken("database-role", "The database is a replica, which nobody can write to", do))
    if seen.most_connections and seen.connections >= BUSY_SHARE * seen.most_connections:
        told = f"{seen.connections} of the database's {seen.most_connections} connections are taken"
        found.append(warning("connections", told, "raise max_connections, or run fewer web and worker processes"))
    return found


def redis(seen: RedisSeen, advice: Advice) -> list[Finding]:
    if seen.problem is not None:
        return [broken("redis", f"Redis does not answer: {seen.problem}", advice.redis)]
    found = [ok("redis", f"Redis answers in {seen.milliseconds:.0f} ms")]
    if seen.policy and seen.policy != NO_EVICTION:
        told = f"Redis throws messages away when its memory is full (maxmemory-policy {seen.policy})"
        found.append(warning("redis-memory", told, f"redis-cli config set maxmemory-policy {NO_EVICTION}"))
    if seen.most_bytes and seen.used_bytes >= BUSY_SHARE * seen.most_bytes:
        told = f"Redis has used {seen.used_bytes / 2**20:.0f} of its {seen.most_bytes / 2**20:.0f} MiB"
        found.append(warning("redis-memory", told, "raise its maxmemory, and see whether a queue is not worked off"))
    return found


def logins(seen: RedisSeen, *, expected: Sequence[str] | None) -> list[Finding]:
    """Of the control plane and of its agents at the broker. `expected`: by name; None: it is not known."""
    if seen.acl_problem is not None:
        told = f"The control plane's login at Redis may not manage agents' logins: {seen.acl_problem}"
        return [broken("redis-login", told, "allow it +acl (ACL SETUSER NAME +acl), or use a login that has it")]
    found = [ok("redis-login", "The control plane's login at Redis may manage agents' logins")]
    if seen.is_open:
        told = "Redis lets everybody in who reaches it, without a password, and lets them do everything"
        found.append(broken("redis-open", told, "set requirepass, and the password in LUMINET_REDIS_URL"))
    if seen.loose:
        told = f"Logins of agents at Redis may do more than they should: {', '.join(seen.loose[:5])}"
        found.append(broken("agent-logins", told, "restart the worker: its sweep sets them right, within a minute"))
    away = sorted({*(expected or ())} - {*seen.users})
    if away:
        told = f"{len(away)} of {len(expected or ())} agents have no login at Redis: {', '.join(away[:5])}"
        found.append(warning("agent-logins", told, "wait a few seconds: the worker's sweep makes them, if it runs"))
    elif expected and not seen.loose:
        found.append(
            ok(
                "agent-logins",
                f"{counted(len(expected), 'login', 'logins')} of agents at Redis, each for its own queue alone",
            )
        )
    return found


def agent_login(problem: str | None) -> Finding:
    """Of the login that was made, used and deleted to try it."""
    if problem is None:
        return ok("agent-login-trial", "Redis makes a login as agents get one, and keeps it to its own queue")
    told = f"Agents get no login at Redis: {problem}"
    do = "use a Redis or Valkey that docs/production.md names as tested, reached without a proxy that filters ACL"
    return broken("agent-login-trial", told, do)


def web(address: str, status: int | None, told: Mapping[str, Any], problem: str | None, *, do: str) -> Finding:
    """By /readyz."""
    if problem is not None:
        return broken("web", f"The web at {address} does not answer: {problem}", do)
    checks = told.get("checks")
    if status == 200 and isinstance(checks, dict):
        return ok("web", f"The web at {address} answers and is ready")
    if not isinstance(checks, dict):
        told_status = f"answers with status {status}, and not as Luminet does"
        return broken("web", f"The web at {address} {told_status}", "see that the address leads to a control plane")
    wrong = "; ".join(f"{name}: {value}" for name, value in checks.items() if value != "ok")
    return broken("web", f"The web at {address} is not ready: {wrong}", do)


def pulse(age_seconds: float | None, *, do: str) -> Finding:
    if age_seconds is None:
        return warning("pulse", "Nothing has ever come from beat through broker and worker into the database", do)
    told = f"came through beat, broker, worker and database {age_seconds:.0f} s ago"
    if age_seconds <= PULSE_LATE_SECONDS:
        return ok("pulse", f"The last pulse {told}")
    judged = broken if age_seconds > PULSE_DEAD_SECONDS else warning
    return judged("pulse", f"The last pulse {told}: it should every 2 s", do)


def workers(names: Sequence[str], *, do: str) -> Finding:
    if not names:
        return broken("worker", "No worker answers: nothing is pushed to agents, nothing is added up", do)
    told = counted(len(names), "worker answers", "workers answer")
    return ok("worker", f"{told} through the broker")


def beat(problem: str | None, *, do: str) -> Finding:
    return ok("beat", "Beat sends") if problem is None else broken("beat", f"Beat sends nothing: {problem}", do)


def part(name: str, problem: str | None, told: Mapping[str, Any], *, log: str) -> Finding:
    """An engine, a sidecar or a gateway, by its /health."""
    if problem is not None:
        return broken(name, f"The part {name} does not answer: {problem}", f"tail -n 30 {log}")
    spooled = told.get("spooled_reports")
    more = f", {spooled} reports wait in its spool" if isinstance(spooled, int) and spooled else ""
    return ok(name, f"The part {name} answers{more}")


def parts(rows: Sequence[Mapping[str, Any]], *, logs: str) -> list[Finding]:
    """Of the supervisor's own list: those that it cannot keep up."""
    unwell = [one for one in rows if one["state"] in ("unhealthy", "restarting")]
    return [_process(str(one["name"]), str(one["state"]), logs) for one in unwell]


def _process(name: str, state: str, logs: str) -> Finding:
    return broken(f"process-{name}", f"The process {name} is {state}", f"tail -n 30 {logs}/{name}.log")


def nothing_runs(left_over: Sequence[str], *, is_installed: bool) -> Finding:
    if left_over:
        told = f"The stack was killed, and {', '.join(left_over)} still run without it"
        return broken("stack", told, "make down, then make up")
    told = "Nothing runs from here" if is_installed else "Nothing is installed here yet, and nothing runs"
    return broken("stack", told, "make up")


def nowhere() -> Finding:
    """In a container of an agent, say: there is no stack, and no setting of a control plane."""
    told = "There is no stack here, and no setting that says where a control plane is"
    do = "luminet doctor --home DIR beside an agent or a gateway, luminet doctor --url URL for a control plane far away"
    return broken("place", told, do)


def certificate(host: str, problem: str | None, ends_at: datetime | None, now: datetime) -> Finding:
    if problem is not None or ends_at is None:
        told = f"The certificate of {host} is not good: {problem or 'it names no end'}"
        return broken("tls", told, f"renew the certificate in the proxy in front of {host}")
    days = (ends_at - now).total_seconds() / 86_400
    told = f"The certificate of {host} is good until {ends_at:%Y-%m-%d}, {days:.0f} days more"
    if days > CERTIFICATE_WARN_DAYS:
        return ok("tls", told)
    return warning("tls", told, f"renew the certificate in the proxy in front of {host}, and see why nothing did")


def base_url(address: str, problem: str | None) -> Finding:
    """Where people go, asked from here."""
    if problem is None:
        return ok("base-url", f"{address}, where people go, leads to a control plane")
    told = f"{address}, where people go, does not answer from here ({problem})"
    return note("base-url", f"{told}; it need not, where a proxy in front is for others")


def stores_advice(logs: str | None) -> Advice:
    """`logs`: of the stack that runs them; None: somebody else does."""
    if logs is None:
        return Advice(
            "see that the server runs, and that LUMINET_DATABASE_URL has its address, user, password and name",
            "see that the server runs, and that LUMINET_REDIS_URL has its address and password",
        )
    again = "make down, then make up"
    return Advice(f"{again}; {logs}/postgres.log says why", f"{again}; {logs}/redis.log says why")
