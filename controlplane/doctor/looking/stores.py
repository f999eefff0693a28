"""The database and Redis, each asked once by one connection that gives up soon."""

import time
from collections.abc import Mapping
from typing import Any

from controlplane.doctor.judging.reaching import DatabaseSeen, RedisSeen

SECONDS = 3
DEFAULT_LOGIN = "default"
AGENTS_PREFIX = "agent."
ASKED_LOGINS = 25
# Some servers write several commands down as their category (+@transaction), so others than these prove nothing.
TOO_MUCH = frozenset(
    f"+{one}"
    for one in (
        *("@all", "@admin", "@dangerous", "@read", "@write", "@keyspace", "@scripting"),
        *("acl", "config", "eval", "flushall", "flushdb", "keys", "monitor", "script", "scan"),
    )
)

_FACTS = """
SELECT current_setting('server_version_num')::int, current_setting('max_connections')::int, pg_is_in_recovery(),
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
"""


def database_see(url: str) -> DatabaseSeen:
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=SECONDS, autocommit=True) as connection:
            connection.execute(f"SET statement_timeout = {SECONDS * 1000}")
            version, most, is_replica, count = connection.execute(_FACTS).fetchone() or (0, 0, False, 0)
            began, steady = time.time(), time.monotonic()
            row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
            seconds = time.monotonic() - steady
    except psycopg.Error as error:
        return DatabaseSeen(problem=reason(error))
    theirs = float(row[0]) if row else began
    return DatabaseSeen(
        milliseconds=seconds * 1000,
        version=version,
        ahead_seconds=theirs - (began + seconds / 2),
        connections=count,
        most_connections=most,
        is_replica=is_replica,
    )


def redis_see(url: str) -> RedisSeen:
    """Everything that is asked is a question: nothing is written, and no other login is tried."""
    import redis

    try:
        with redis_client(url) as client:
            client.ping()
            began = time.monotonic()
            client.ping()
            milliseconds = (time.monotonic() - began) * 1000
            told: Mapping[str, Any] = client.info()
            users, acl_problem, is_open, loose = _logins(client)
    except (redis.RedisError, OSError, ValueError) as error:
        return RedisSeen(problem=reason(error))
    return RedisSeen(
        milliseconds=milliseconds,
        version=str(told.get("redis_version", "")),
        policy=str(told.get("maxmemory_policy", "")),
        used_bytes=int(told.get("used_memory", 0)),
        most_bytes=int(told.get("maxmemory", 0)),
        acl_problem=acl_problem,
        users=users,
        is_open=is_open,
        loose=loose,
    )


def redis_client(url: str) -> Any:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    once = Retry(NoBackoff(), 0)  # a person waits: the first answer counts
    return redis.Redis.from_url(
        url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS, retry=once, decode_responses=True
    )


def _logins(client: Any) -> tuple[list[str], str | None, bool, list[str]]:
    import redis

    try:
        users = [str(one) for one in client.acl_users()]
        default = client.acl_getuser(DEFAULT_LOGIN) if DEFAULT_LOGIN in users else None
        is_open = bool(default and default["enabled"] and "nopass" in default["flags"])
        asked = [one for one in users if one.startswith(AGENTS_PREFIX)][:ASKED_LOGINS]
        loose = [name for name in asked if _is_loose(name, client.acl_getuser(name))]
    except redis.exceptions.NoPermissionError as error:
        return [], reason(error), False, []
    return users, None, is_open, loose


def _is_loose(name: str, user: Mapping[str, Any] | None) -> bool:
    """Whether it reaches keys that do not begin with its own name, or commands that are more than a list."""
    if user is None or not user["enabled"]:
        return False
    own = name.rpartition(".")[0]
    keys = [str(one) for one in user["keys"]]
    is_wide = any(key and not key.lstrip("~").startswith(f"{own}:") for key in keys)
    rights = {str(one) for one in (*user["categories"], *user["commands"])}
    return is_wide or "-@all" not in rights or bool(rights & TOO_MUCH)


def reason(error: BaseException) -> str:
    """In a line, as the library says it: they name hosts, ports and users, and no passwords."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
