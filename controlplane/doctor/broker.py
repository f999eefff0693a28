"""Checks of Redis: it answers, and its logins may do what they need and nothing more."""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from controlplane.doctor.context import Context, shared
from controlplane.doctor.database import database_seen, django_models
from controlplane.doctor.finding import Finding, NotExamined, broken, counted, first_line, ok, warning

SECONDS = 3
BUSY_SHARE = 0.9
NO_EVICTION = "noeviction"
DEFAULT_LOGIN = "default"
AGENTS_PREFIX = "agent."
ASKED_LOGINS = 25
# Some servers report several commands as their category (+@transaction), so only these prove too many rights.
TOO_MUCH = frozenset(
    f"+{right}"
    for right in (
        *("@all", "@admin", "@dangerous", "@read", "@write", "@keyspace", "@scripting"),
        *("acl", "config", "eval", "flushall", "flushdb", "keys", "monitor", "script", "scan"),
    )
)


@dataclass(frozen=True, slots=True)
class RedisSeen:
    problem: str | None = None
    milliseconds: float = 0.0
    version: str = ""
    policy: str = ""  # what Redis does when its memory is full
    used_bytes: int = 0
    most_bytes: int = 0
    users: Sequence[str] = ()
    acl_problem: str | None = None  # why this login may not manage others
    is_open: bool = False  # to any client that can connect, without a password
    loose: Sequence[str] = ()  # agents' logins with too many rights


@shared
def redis_seen(context: Context) -> RedisSeen:
    """Collect facts about Redis. It only reads, and tries no other login."""
    url = context.environment.redis_url
    import redis

    try:
        with redis_client(url) as client:
            client.ping()
            began = time.monotonic()
            client.ping()
            milliseconds = (time.monotonic() - began) * 1000
            server_info: Mapping[str, Any] = client.info()
            logins = _logins_seen(client)
    except (redis.RedisError, OSError, ValueError) as error:
        return RedisSeen(problem=first_line(error))
    version, policy = str(server_info.get("redis_version", "")), str(server_info.get("maxmemory_policy", ""))
    used, most = int(server_info.get("used_memory", 0)), int(server_info.get("maxmemory", 0))
    return RedisSeen(None, milliseconds, version, policy, used, most, *logins)


def redis_client(url: str) -> Any:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    once = Retry(NoBackoff(), 0)  # a person waits, so there is no retry
    return redis.Redis.from_url(
        url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS, retry=once, decode_responses=True
    )


def _logins_seen(client: Any) -> tuple[list[str], str | None, bool, list[str]]:
    """Return the last four fields of RedisSeen."""
    import redis

    try:
        users = [str(name) for name in client.acl_users()]
        default = client.acl_getuser(DEFAULT_LOGIN) if DEFAULT_LOGIN in users else None
        is_open = bool(default and default["enabled"] and "nopass" in default["flags"])
        checked_logins = [name for name in users if name.startswith(AGENTS_PREFIX)][:ASKED_LOGINS]
        loose = [name for name in checked_logins if _is_loose(name, client.acl_getuser(name))]
    except redis.exceptions.NoPermissionError as error:
        return [], first_line(error), False, []
    return users, None, is_open, loose


def _is_loose(name: str, user: Mapping[str, Any] | None) -> bool:
    """Return whether the login may use keys outside its prefix, or commands other than those of a list."""
    if user is None or not user["enabled"]:
        return False
    namespace = name.rpartition(".")[0]
    keys = [str(key) for key in user["keys"]]
    is_wide = any(key and not key.lstrip("~").startswith(f"{namespace}:") for key in keys)
    rights = {str(right) for right in (*user["categories"], *user["commands"])}
    return is_wide or "-@all" not in rights or bool(rights & TOO_MUCH)


def answering_redis(context: Context) -> RedisSeen:
    redis_state = redis_seen(context)
    if redis_state.problem is not None:
        raise NotExamined("Redis does not answer")
    return redis_state


def redis(context: Context) -> Iterator[Finding]:
    do = "see that the server runs, and that LUMINET_REDIS_URL has its address and password"
    yield from redis_findings(redis_seen(context), do=context.place.log_advice("redis") or do)


def redis_findings(redis_state: RedisSeen, *, do: str) -> Iterator[Finding]:
    if redis_state.problem is not None:
        yield broken("redis", f"Redis does not answer: {redis_state.problem}", do)
        return
    yield ok("redis", f"Redis answers in {redis_state.milliseconds:.0f} ms")
    if redis_state.policy and redis_state.policy != NO_EVICTION:
        says = f"Redis throws messages away when its memory is full (maxmemory-policy {redis_state.policy})"
        yield warning("redis-memory", says, f"redis-cli config set maxmemory-policy {NO_EVICTION}")
    if redis_state.most_bytes and redis_state.used_bytes >= BUSY_SHARE * redis_state.most_bytes:
        says = f"Redis has used {redis_state.used_bytes / 2**20:.0f} of its {redis_state.most_bytes / 2**20:.0f} MiB"
        yield warning("redis-memory", says, "raise its maxmemory, and see whether a queue is not worked off")


def logins(context: Context) -> Iterator[Finding]:
    redis_state, expected = answering_redis(context), None
    if database_seen(context).problem is None:
        with django_models(context):
            from controlplane.fleet.broker import login_name
            from controlplane.fleet.selectors import agents_living

            expected = [login_name(str(agent)) for agent in agents_living().values_list("pk", flat=True)]
    yield from login_findings(redis_state, expected=expected)


def login_findings(redis_state: RedisSeen, *, expected: Sequence[str] | None) -> Iterator[Finding]:
    """Evaluate the logins of control plane and agents. `expected`: the agents' login names; None: unknown."""
    if redis_state.acl_problem is not None:
        says = f"The control plane's login at Redis may not manage agents' logins: {redis_state.acl_problem}"
        yield broken("redis-login", says, "allow it +acl (ACL SETUSER NAME +acl), or use a login that has it")
        return
    yield ok("redis-login", "The control plane's login at Redis may manage agents' logins")
    if redis_state.is_open:
        says = "Redis lets everybody in who reaches it, without a password, and lets them do everything"
        yield broken("redis-open", says, "set requirepass, and the password in LUMINET_REDIS_URL")
    if redis_state.loose:
        says = f"Logins of agents at Redis may do more than they should: {', '.join(redis_state.loose[:5])}"
        yield broken("agent-logins", says, "restart the worker: its sweep sets them right, within a minute")
    missing = sorted({*(expected or ())} - {*redis_state.users})
    if missing:
        says = f"{len(missing)} of {len(expected or ())} agents have no login at Redis: {', '.join(missing[:5])}"
        yield warning("agent-logins", says, "wait a few seconds: the worker's sweep makes them, if it runs")
    elif expected and not redis_state.loose:
        count = counted(len(expected), "login", "logins")
        yield ok("agent-logins", f"{count} of agents at Redis, each for its own queue alone")


def trial_login(context: Context) -> Iterator[Finding]:
    if answering_redis(context).acl_problem is not None:
        raise NotExamined("the control plane's own login may not make one")
    yield trial_login_finding(agent_login_problem(context.environment.redis_url))


def trial_login_finding(problem: str | None) -> Finding:
    if problem is None:
        return ok("agent-login-trial", "Redis makes a login as agents get one, and keeps it to its own queue")
    do = "use a Redis or Valkey that docs/production.md names as tested, reached without a proxy that filters ACL"
    return broken("agent-login-trial", f"Agents get no login at Redis: {problem}", do)


def agent_login_problem(url: str) -> str | None:
    """Create a login like an agent's, use it and delete it. Return why a step fails, or None."""
    import redis

    from controlplane.fleet.broker_rights import commands_known, login_rules

    name, password = f"luminet.doctor.{secrets.token_hex(8)}", secrets.token_hex(32)
    prefix = f"{name}:"
    with redis_client(url) as client:
        try:
            rules = login_rules(prefix, commands_known(client))
            client.execute_command("ACL SETUSER", name, *rules, "on", f">{password}")
        except redis.RedisError as error:
            return f"it refuses to make one: {first_line(error)}"
        try:
            return login_use_problem(_url_with_login(url, name, password), f"{prefix}queue")
        finally:
            client.delete(f"{prefix}queue")
            client.execute_command("ACL DELUSER", name)


def login_use_problem(url: str, queue: str) -> str | None:
    """Return the first right that this login lacks, or has and should not."""
    import redis

    try:
        with redis_client(url) as client:
            client.ping()
            client.lpush(queue, "x")
            if not client.rpop(queue):
                return "what such a login puts into its queue is not there afterwards"
            return _foreign_queue_problem(client)
    except redis.AuthenticationError as error:
        return f"it makes one and then does not let it in: {first_line(error)}"
    except redis.RedisError as error:
        return f"it lets one in and then refuses what a worker needs: {first_line(error)}"


def _foreign_queue_problem(client: Any) -> str | None:
    import redis

    try:
        client.llen("agent.luminet-doctor:queue")
    except redis.exceptions.NoPermissionError:
        return None
    return "such a login can read queues of others: this server does not keep to the rules of a login"


def _url_with_login(url: str, name: str, password: str) -> str:
    parts = urlsplit(url)
    query = "&".join(pair for pair in parts.query.split("&") if pair.partition("=")[0] not in ("username", "password"))
    return urlunsplit(parts._replace(netloc=f"{name}:{password}@{parts.netloc.rpartition('@')[2]}", query=query))
