"""A login as agents get one, made at Redis for this check, used, and deleted again."""

import secrets
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from controlplane.doctor.looking.stores import reason, redis_client


def agent_login_problem(url: str) -> str | None:
    """What Redis refuses of making and using an agent's login, in words; None: all of it works."""
    import redis

    from controlplane.fleet.broker_rights import commands_known, login_rules

    name, password = f"luminet.doctor.{secrets.token_hex(8)}", secrets.token_hex(32)
    prefix = f"{name}:"
    with redis_client(url) as client:
        try:
            rules = login_rules(prefix, commands_known(client))
            client.execute_command("ACL SETUSER", name, *rules, "on", f">{password}")
        except redis.RedisError as error:
            return f"it refuses to make one: {reason(error)}"
        try:
            return login_use_problem(_url_of(url, name, password), f"{prefix}queue")
        finally:
            client.delete(f"{prefix}queue")
            client.execute_command("ACL DELUSER", name)


def login_use_problem(url: str, queue: str) -> str | None:
    """What a login that was made cannot do and should, or can and should not."""
    import redis

    try:
        with redis_client(url) as client:
            client.ping()
            client.lpush(queue, "x")
            if not client.rpop(queue):
                return "what such a login puts into its queue is not there afterwards"
            return _reach_problem(client)
    except redis.AuthenticationError as error:
        return f"it makes one and then does not let it in: {reason(error)}"
    except redis.RedisError as error:
        return f"it lets one in and then refuses what a worker needs: {reason(error)}"


def _reach_problem(client: Any) -> str | None:
    import redis

    try:
        client.llen("agent.luminet-doctor:queue")
    except redis.exceptions.NoPermissionError:
        return None
    return "such a login can read queues of others: this server does not keep to the rules of a login"


def _url_of(url: str, name: str, password: str) -> str:
    parts = urlsplit(url)
    query = "&".join(pair for pair in parts.query.split("&") if pair.partition("=")[0] not in ("username", "password"))
    return urlunsplit(parts._replace(netloc=f"{name}:{password}@{parts.netloc.rpartition('@')[2]}", query=query))
