"""Commands on their way down: Celery messages, put into the agents' own queues at the broker in one round trip.

One connection does for all agents. What an agent's worker sees as its queue `agent.<id>` lies behind the prefix of its
login, where this writes directly.

Celery's own `expires` is left out: a worker judges it by its machine's clock, and an agent whose clock is wrong would
drop everything. The command says when it expires; and a queue that nobody has read for longer than that is forgotten.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from redis.backoff import NoBackoff
from redis.retry import Retry

from controlplane.fleet.broker import queue_key
from controlplane.fleet.errors import BrokerAway
from controlplane.fleet.keys import sealing_key, signing_key
from controlplane.rollouts.messages import task_message
from engine_agent.contracts.protocol import queue_name
from engine_agent.contracts.sealing import command_seal
from engine_agent.contracts.wire import COMMAND_SECONDS, COMMAND_TASK, Command, command_encode

TIMEOUT_SECONDS = 2
MOST_QUEUED = 64  # commands; the oldest give way, and what still matters is sent again
QUEUE_SECONDS = round(COMMAND_SECONDS) + 10


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A command, and by which of its agent's keys it is sealed."""

    command: Command
    key_number: int = field(repr=False)


def commands_send(outgoing: Sequence[Outgoing], *, url: str) -> None:
    """Sealed and signed; each agent finds its own in the order given. After BrokerAway none counts as sent."""
    signing = signing_key()
    try:
        with impatient_client(url).pipeline(transaction=False) as pipe:
            for one in outgoing:
                agent = one.command.agent
                key = queue_key(agent)
                sealed = _sealed(one, signing)
                pipe.lpush(key, task_message(COMMAND_TASK, [sealed], queue=queue_name(agent), shown="(sealed)"))
                pipe.ltrim(key, 0, MOST_QUEUED - 1)
                pipe.expire(key, QUEUE_SECONDS)
            pipe.execute()
    except redis.RedisError as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BrokerAway(f"Redis: {reason}") from error


def _sealed(one: Outgoing, signing: Ed25519PrivateKey) -> str:
    agent = one.command.agent
    key = sealing_key(agent, one.key_number)
    return command_seal(command_encode(one.command), agent=agent, key=key, signing=signing)


@lru_cache(maxsize=1)
def impatient_client(url: str) -> redis.Redis:
    """Gives up soon: the plan is made again in a moment. Opens a new connection, once, where an old one is dead."""
    return redis.Redis.from_url(
        url,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 1),
    )
