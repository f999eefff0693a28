"""Agents' logins at the broker: one Redis user for each, which can work off its own queue and do nothing else.

Redis keeps these users only in memory. After a restart, the sweep restores them from the agents in the database, with
passwords derived from their key numbers. The control plane's own login must be allowed to manage users. Another control
plane may keep its agents' logins on the same server; the names of ours end with our installation id.
"""

import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import redis
from django.conf import settings
from django.utils import timezone

from controlplane.fleet.broker_rights import SCRIPTS, commands_known, login_rules
from controlplane.fleet.errors import BrokerAway
from controlplane.fleet.keys import broker_password, installation_id
from controlplane.fleet.models import Agent
from engine_agent.contracts.protocol import queue_name

log = logging.getLogger("luminet.fleet.broker")
TIMEOUT_SECONDS = 3
PREFIX = "agent."
PATTERN_USER, PATTERN_AGENT = "luminet.agents", "x"  # unused; shows how this server describes an agent's rights
LOOKED_AT = 25  # logins checked in one round, plus as many of agents that were just taken over
TAKEN_OVER_WITHIN = timedelta(minutes=10)
KEPT_OPTIONS = ("ssl_cert_reqs", "ssl_check_hostname")  # of our URL; others are only for us or this machine


@dataclass(frozen=True, slots=True)
class Restored:
    """The number of logins that were made and dropped to match the agents in the database."""

    made: int
    dropped: int


def key_prefix(agent: str) -> str:
    """Return the prefix of the agent's broker keys.

    Ids contain no dot and no colon, so two agents' keys never overlap.
    """
    return f"{PREFIX}{agent}:"


def login_name(agent: str) -> str:
    return f"{PREFIX}{agent}.{installation_id()}"


def login_agent(login: str) -> str | None:
    """Return the agent that a login belongs to, or None if the login is not ours."""
    ending = f".{installation_id()}"
    is_ours = login.startswith(PREFIX) and login.endswith(ending) and len(login) > len(PREFIX) + len(ending)
    return login.removeprefix(PREFIX).removesuffix(ending) if is_ours else None


def queue_key(agent: str) -> str:
    """Return the key of the agent's queue, for clients that do not add its prefix."""
    return f"{key_prefix(agent)}{queue_name(agent)}"


def agent_url(agent: str, password: str) -> str:
    """Return the broker's URL with the agent's own login."""
    agent_redis_url = settings.ENVIRONMENT.agent_redis_url
    parts = urlsplit(agent_redis_url or settings.ENVIRONMENT.redis_url)
    kept_options = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name in KEPT_OPTIONS])
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{login_name(agent)}:{quote(password, safe='')}@{host}"
    return urlunsplit(parts._replace(netloc=netloc, query=parts.query if agent_redis_url else kept_options))


def logins_ensure(agents: Iterable[Agent]) -> None:
    """Give each of these agents a login with its rights. Agents that are connected stay connected."""
    with _connected() as client, client.pipeline(transaction=False) as pipe:
        commands = commands_known(client)
        for script in SCRIPTS:  # before an agent may need them
            _do(pipe, "SCRIPT LOAD", script)
        for agent in agents:
            rules = login_rules(key_prefix(agent.pk), commands)
            _setuser(pipe, login_name(agent.pk), [*rules, "on", f"#{_digest(agent)}"])
        pipe.execute()


def login_drop(agent: str) -> None:
    """Delete the login and the agent's queue. This closes all its connections at once."""
    with _connected() as client:
        _do(client, "ACL DELUSER", login_name(agent))
        _forget(client, agent)


def login_renew(agent: Agent, *, is_new: bool) -> None:
    """Give an agent that has just enrolled its login, and end earlier sessions. With Redis away, the sweep does it."""
    with _left_to_the_sweep(agent.pk):
        if not is_new:
            login_drop(agent.pk)
        logins_ensure([agent])


def login_end(agent: str) -> None:
    """End the login of a revoked agent. With Redis away, the sweep does it, and no agent can sign in before then."""
    with _left_to_the_sweep(agent):
        login_drop(agent)


def logins_restore() -> Restored:
    """Make missing logins, drop surplus ones, and check the rights of a few of the others."""
    with _connected() as client:
        # Read the names before the agents: an agent that enrols meanwhile gets its login again, but never loses it.
        names = {agent_id for name in map(str, client.acl_users()) if (agent_id := login_agent(name)) is not None}
        agents = _living()
        surplus = sorted(names - {agent.pk for agent in agents})
        for name in surplus:
            login_drop(name)
        agents_to_renew = [agent for agent in agents if agent.pk not in names]
        # Redis takes a fifth of a millisecond to describe one login, and serves no other client meanwhile.
        changed = _wrong(client, _looked_at([agent for agent in agents if agent.pk in names]))
        for agent in changed:  # an agent that signed in with a wrong login must sign in again
            _do(client, "ACL DELUSER", login_name(agent.pk))
        agents_to_renew += changed
    logins_ensure(agents_to_renew)
    if agents_to_renew or surplus:
        log.info("brought the agents' logins into line", extra={"made": len(agents_to_renew), "dropped": len(surplus)})
    return Restored(len(agents_to_renew), len(surplus))


def _digest(agent: Agent) -> str:
    """Return the password's hash. Redis gets only this, so its memory and logs let no one sign in."""
    return sha256(broker_password(agent.pk, agent.key_number).encode()).hexdigest()


def _living() -> list[Agent]:
    return list(Agent.objects.filter(revoked_at=None).only("id", "key_number", "enrolled_at").order_by("pk"))


def _looked_at(agents: Sequence[Agent]) -> list[Agent]:
    """Return the agents just taken over, because Redis may still have their old logins, and a random few others."""
    since = timezone.now() - TAKEN_OVER_WITHIN
    taken_over = [agent for agent in agents if agent.key_number > 1 and agent.enrolled_at >= since]
    newest = sorted(taken_over, key=lambda agent: agent.enrolled_at, reverse=True)[:LOOKED_AT]
    remaining = [agent for agent in agents if agent not in newest]
    return [*newest, *random.sample(remaining, min(LOOKED_AT, len(remaining)))]


def _wrong(client: redis.Redis, agents: Sequence[Agent]) -> list[Agent]:
    """Return the agents that have a login with another password or other rights than it should have."""
    pattern_rules = login_rules(key_prefix(PATTERN_AGENT), commands_known(client))
    with client.pipeline(transaction=True) as pipe:
        _setuser(pipe, PATTERN_USER, [*pattern_rules, "off"])
        for name in (PATTERN_USER, *(login_name(agent.pk) for agent in agents)):
            pipe.acl_getuser(name)
        _do(pipe, "ACL DELUSER", PATTERN_USER)
        _, pattern, *users, _ = pipe.execute()
    return [agent for agent, user in zip(agents, users, strict=True) if not _is_right(agent, user, pattern)]


def _is_right(agent: Agent, user: Mapping[str, Any] | None, pattern: Mapping[str, Any]) -> bool:
    """Return whether a login is as it should be.

    Its rights are compared with those of a user with the same rules: server versions describe rules differently.
    """
    if user is None or not user["enabled"] or list(user["passwords"]) != [_digest(agent)]:
        return False
    keys = [key.replace(key_prefix(PATTERN_AGENT), key_prefix(agent.pk)) for key in pattern["keys"]]
    return list(user["keys"]) == keys and _rights(user) == _rights(pattern)


def _rights(user: Mapping[str, Any]) -> dict[str, Any]:
    own = ("enabled", "flags", "passwords", "keys")
    return {name: value for name, value in user.items() if name not in own} | {
        "flags": {*user["flags"]} - {"on", "off"}
    }


def _setuser(client: redis.Redis, name: str, rules: Iterable[str]) -> None:
    _do(client, "ACL SETUSER", name, *rules)


def _do(client: redis.Redis, *arguments: str) -> None:
    client.execute_command(*arguments)  # type: ignore[no-untyped-call]


def _forget(client: redis.Redis, agent: str) -> None:
    """Delete the agent's queued messages: they are sealed with keys that it no longer has."""
    keys = list(client.scan_iter(match=f"{key_prefix(agent)}*", count=1000))
    if keys:
        client.delete(*keys)


@contextmanager
def _left_to_the_sweep(agent: str) -> Iterator[None]:
    try:
        yield
    except BrokerAway as error:
        log.warning("an agent's login has to wait for the broker", extra={"agent": agent, "reason": str(error)})


@contextmanager
def _connected() -> Iterator[redis.Redis]:
    try:
        yield _client(settings.ENVIRONMENT.redis_url)
    except redis.RedisError as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BrokerAway(f"Redis: {reason}") from error


@lru_cache(maxsize=1)
def _client(url: str) -> redis.Redis:
    """Return a client with short timeouts that replaces dead connections."""
    return redis.Redis.from_url(
        url,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        health_check_interval=25,
        decode_responses=True,
    )
