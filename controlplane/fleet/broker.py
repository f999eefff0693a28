"""Agents' logins at the broker: a Redis user each, who can work off its own queue and do nothing else.

Redis keeps them in memory alone here, so they are brought back after a restart: by the sweep, out of the agents there
are, with passwords derived from their key numbers. The control plane's own login must be allowed to manage users.
Another control plane may have its agents' logins on the same server: ours are those whose names end with our id.
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
PATTERN_USER, PATTERN_AGENT = "luminet.agents", "x"  # nobody's: show how this server writes down what agents may do
LOOKED_AT = 25  # logins in one round, and as many of who was taken over just now
TAKEN_OVER_WITHIN = timedelta(minutes=10)
KEPT_OPTIONS = ("ssl_cert_reqs", "ssl_check_hostname")  # of our own URL: the others are ours alone, or of this machine


@dataclass(frozen=True, slots=True)
class Restored:
    """What it took to bring the logins into line with the agents there are."""

    made: int
    dropped: int


def key_prefix(agent: str) -> str:
    """What all of its keys at the broker begin with. No other agent's can: ids hold no dot and no colon."""
    return f"{PREFIX}{agent}:"


def login_name(agent: str) -> str:
    return f"{PREFIX}{agent}.{installation_id()}"


def login_agent(login: str) -> str | None:
    """Whose login of ours that is; None: it is somebody else's."""
    ending = f".{installation_id()}"
    is_ours = login.startswith(PREFIX) and login.endswith(ending) and len(login) > len(PREFIX) + len(ending)
    return login.removeprefix(PREFIX).removesuffix(ending) if is_ours else None


def queue_key(agent: str) -> str:
    """Where a message for it is put, by who has no prefix."""
    return f"{key_prefix(agent)}{queue_name(agent)}"


def agent_url(agent: str, password: str) -> str:
    """Where it reaches the broker, as itself."""
    theirs = settings.ENVIRONMENT.agent_redis_url
    parts = urlsplit(theirs or settings.ENVIRONMENT.redis_url)
    kept = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name in KEPT_OPTIONS])
    place = parts.netloc.rpartition("@")[2]
    netloc = f"{login_name(agent)}:{quote(password, safe='')}@{place}"
    return urlunsplit(parts._replace(netloc=netloc, query=parts.query if theirs else kept))


def logins_ensure(agents: Iterable[Agent]) -> None:
    """Each of them can sign in and do what is its own. Those that could before are left connected."""
    with _connected() as client, client.pipeline(transaction=False) as pipe:
        commands = commands_known(client)
        for script in SCRIPTS:  # before anybody may want it
            _do(pipe, "SCRIPT LOAD", script)
        for agent in agents:
            rules = login_rules(key_prefix(agent.pk), commands)
            _setuser(pipe, login_name(agent.pk), [*rules, "on", f"#{_digest(agent)}"])
        pipe.execute()


def login_drop(agent: str) -> None:
    """Out at once, with every connection it has, and with what lay in its queue."""
    with _connected() as client:
        _do(client, "ACL DELUSER", login_name(agent))
        _forget(client, agent)


def login_renew(agent: Agent, *, is_new: bool) -> None:
    """For who has just enrolled: nobody stays signed in from before. With Redis away it is left to the sweep."""
    with _left_to_the_sweep(agent.pk):
        if not is_new:
            login_drop(agent.pk)
        logins_ensure([agent])


def login_end(agent: str) -> None:
    """For who was revoked. With Redis away it is left to the sweep, before which nobody can sign in either."""
    with _left_to_the_sweep(agent):
        login_drop(agent)


def logins_restore() -> Restored:
    """As many logins as there are agents. Whether they are as they should be is looked at for a few of many."""
    with _connected() as client:
        # Before the agents: the login of one that enrols meanwhile is made anew at worst, and never taken from it.
        names = {ours for name in map(str, client.acl_users()) if (ours := login_agent(name)) is not None}
        agents = _living()
        surplus = sorted(names - {agent.pk for agent in agents})
        for name in surplus:
            login_drop(name)
        wrong = [agent for agent in agents if agent.pk not in names]
        # To write one login down takes Redis a fifth of a millisecond, in which it does nothing else for anybody.
        changed = _wrong(client, _looked_at([agent for agent in agents if agent.pk in names]))
        for agent in changed:  # whoever is signed in by what is wrong has to sign in again
            _do(client, "ACL DELUSER", login_name(agent.pk))
        wrong += changed
    logins_ensure(wrong)
    if wrong or surplus:
        log.info("brought the agents' logins into line", extra={"made": len(wrong), "dropped": len(surplus)})
    return Restored(len(wrong), len(surplus))


def _digest(agent: Agent) -> str:
    """Redis is told the hash: what it keeps or logs lets nobody sign in."""
    return sha256(broker_password(agent.pk, agent.key_number).encode()).hexdigest()


def _living() -> list[Agent]:
    return list(Agent.objects.filter(revoked_at=None).only("id", "key_number", "enrolled_at").order_by("pk"))


def _looked_at(agents: Sequence[Agent]) -> list[Agent]:
    """Who was taken over just now, as with Redis away the login is still of before; and some of the others."""
    since = timezone.now() - TAKEN_OVER_WITHIN
    taken_over = [agent for agent in agents if agent.key_number > 1 and agent.enrolled_at >= since]
    newest = sorted(taken_over, key=lambda agent: agent.enrolled_at, reverse=True)[:LOOKED_AT]
    others = [agent for agent in agents if agent not in newest]
    return [*newest, *random.sample(others, min(LOOKED_AT, len(others)))]


def _wrong(client: redis.Redis, agents: Sequence[Agent]) -> list[Agent]:
    """Those whose login has another password or other rights than it should."""
    pattern_rules = login_rules(key_prefix(PATTERN_AGENT), commands_known(client))
    with client.pipeline(transaction=True) as pipe:
        _setuser(pipe, PATTERN_USER, [*pattern_rules, "off"])
        for name in (PATTERN_USER, *(login_name(agent.pk) for agent in agents)):
            pipe.acl_getuser(name)
        _do(pipe, "ACL DELUSER", PATTERN_USER)
        _, pattern, *found, _ = pipe.execute()
    return [agent for agent, user in zip(agents, found, strict=True) if not _is_right(agent, user, pattern)]


def _is_right(agent: Agent, user: Mapping[str, Any] | None, pattern: Mapping[str, Any]) -> bool:
    """Compared with a user of the same rules: what a server makes of them differs from version to version."""
    if user is None or not user["enabled"] or list(user["passwords"]) != [_digest(agent)]:
        return False
    keys = [one.replace(key_prefix(PATTERN_AGENT), key_prefix(agent.pk)) for one in pattern["keys"]]
    return list(user["keys"]) == keys and _rights(user) == _rights(pattern)


def _rights(user: Mapping[str, Any]) -> dict[str, Any]:
    own = ("enabled", "flags", "passwords", "keys")
    return {name: value for name, value in user.items() if name not in own} | {
        "flags": {*user["flags"]} - {"on", "off"}
    }


def _setuser(client: redis.Redis, name: str, rules: Iterable[str]) -> None:
    _do(client, "ACL SETUSER", name, *rules)


def _do(client: redis.Redis, *words: str) -> None:
    client.execute_command(*words)  # type: ignore[no-untyped-call]


def _forget(client: redis.Redis, agent: str) -> None:
    """What was meant for an agent before, sealed with keys that it has no more."""
    found = list(client.scan_iter(match=f"{key_prefix(agent)}*", count=1000))
    if found:
        client.delete(*found)


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
    """Gives up soon, and opens a new connection where an old one is dead."""
    return redis.Redis.from_url(
        url,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        health_check_interval=25,
        decode_responses=True,
    )
