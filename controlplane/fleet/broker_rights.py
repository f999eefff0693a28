"""What an agent's login at the broker may do, and which of that a server knows. Needs no Django."""

import secrets
from collections.abc import Iterable

import redis
from redis.lock import Lock

# The commands of a Celery worker on one queue; tests/integration/test_redis_versions.py runs one under this login.
REQUIRED_COMMANDS = (
    *("ping", "select", "client|setname"),
    *("brpop", "rpop", "llen", "lpush", "rpush"),  # the queue: taken from, and given back to
    *("hset", "hget", "hdel", "zadd", "zrem", "zrange"),  # what it has taken and not acknowledged
    *("sadd", "srem", "smembers"),  # which exchange leads to its queue
    *("multi", "exec", "watch", "unwatch", "discard"),
    *("set", "get", "del", "evalsha"),  # the lock under which what was taken too long ago is given back
)
# Clients tell their name and version by it and do without where it is refused. Redis 7.0 refuses even its name.
OPTIONAL_COMMANDS = ("client|setinfo",)
# An agent that may load scripts can stop Redis for everybody with one. Agents run those that we load, and no others.
SCRIPTS = (Lock.LUA_RELEASE_SCRIPT,)
UNKNOWN = "unknown command"  # the server's words for a name in a rule that it does not know


def login_rules(prefix: str, commands: Iterable[str]) -> list[str]:
    """Rules of a login that reaches the keys with this prefix by these commands alone."""
    # `reset` also takes every password, key and command that the login had; the whole is one command, and atomic.
    return ["reset", f"~{prefix}*", "resetchannels", *(f"+{name}" for name in commands)]


def commands_known(client: redis.Redis) -> tuple[str, ...]:
    """Every required command, and the optional ones that this server accepts in a rule."""
    return (*REQUIRED_COMMANDS, *(name for name in OPTIONAL_COMMANDS if _is_known(client, name)))


def _is_known(client: redis.Redis, command: str) -> bool:
    """Ask by making a login that is off: this needs no other right than what follows."""
    user = f"luminet.try.{secrets.token_hex(8)}"
    with client.pipeline(transaction=False) as pipe:
        pipe.execute_command("ACL SETUSER", user, f"+{command}")  # type: ignore[no-untyped-call]
        pipe.execute_command("ACL DELUSER", user)  # type: ignore[no-untyped-call]
        answer, _ = pipe.execute(raise_on_error=False)
    if not isinstance(answer, redis.RedisError):
        return True
    if UNKNOWN in str(answer).lower():
        return False
    raise answer
