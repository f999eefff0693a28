"""The rights of an agent's login at the broker, limited to commands that the server knows. Needs no Django."""

import secrets
from collections.abc import Iterable

import redis
from redis.lock import Lock

# The commands of a Celery worker on one queue; tests/integration/test_redis_versions.py runs one under this login.
REQUIRED_COMMANDS = (
    *("ping", "select", "client|setname"),
    *("brpop", "rpop", "llen", "lpush", "rpush"),  # the queue: take messages and give them back
    *("hset", "hget", "hdel", "zadd", "zrem", "zrange"),  # messages taken but not acknowledged
    *("sadd", "srem", "smembers"),  # the bindings of exchanges to its queue
    *("multi", "exec", "watch", "unwatch", "discard"),
    *("set", "get", "del", "evalsha"),  # the lock for giving back messages that were taken too long ago
)
# Clients send their name and version with it and tolerate a refusal. Redis 7.0 rejects a rule that names it.
OPTIONAL_COMMANDS = ("client|setinfo",)
# A script can block Redis for all clients, so agents may run only the scripts that we load.
SCRIPTS = (Lock.LUA_RELEASE_SCRIPT,)
UNKNOWN = "unknown command"  # the server's error for a rule that names an unknown command


def login_rules(prefix: str, commands: Iterable[str]) -> list[str]:
    """Return the rules of a login that may use only these commands, on keys with this prefix."""
    # `reset` removes every password, key and command of the login. All rules are one command, so the change is atomic.
    return ["reset", f"~{prefix}*", "resetchannels", *(f"+{name}" for name in commands)]


def commands_known(client: redis.Redis) -> tuple[str, ...]:
    """Return every required command, and the optional ones that this server accepts in a rule."""
    return (*REQUIRED_COMMANDS, *(name for name in OPTIONAL_COMMANDS if _is_known(client, name)))


def _is_known(client: redis.Redis, command: str) -> bool:
    """Return whether the server knows a command, by making a disabled login with it.

    This needs no right beyond that of making logins.
    """
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
