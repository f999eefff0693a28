"""Send commands to agents: Celery messages, put into the agents' queues at the broker in one round trip.

One connection serves all agents. An agent's worker sees its queue as `agent.<id>`; its login adds a prefix, and this
module writes to the prefixed key directly.

Celery's `expires` is not used: a worker judges it by its machine's clock, so an agent with a wrong clock would drop
everything. Each command names its own expiry, and a queue that is not read for longer than that is deleted.
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
MOST_QUEUED = 64  # commands; the oldest are dropped, and those that still matter are sent again
QUEUE_SECONDS = round(COMMAND_SECONDS) + 10


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A command, and the number of its agent's key that seals it."""

    command: Command
    key_number: int = field(repr=False)


def commands_send(outgoing: Sequence[Outgoing], *, url: str) -> None:
    """Seal, sign and send commands; each agent gets its own in this order. After BrokerAway none counts as sent."""
    signing = signing_key()
    try:
        with impatient_client(url).pipeline(transaction=False) as pipe:
            for outgoing_command in outgoing:
                agent = outgoing_command.command.agent
                key = queue_key(agent)
                sealed = _sealed(outgoing_command, signing)
                pipe.lpush(key, task_message(COMMAND_TASK, [sealed], queue=queue_name(agent), shown="(sealed)"))
                pipe.ltrim(key, 0, MOST_QUEUED - 1)
                pipe.expire(key, QUEUE_SECONDS)
            pipe.execute()
    except redis.RedisError as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BrokerAway(f"Redis: {reason}") from error


def _sealed(outgoing: Outgoing, signing: Ed25519PrivateKey) -> str:
    agent = outgoing.command.agent
    key = sealing_key(agent, outgoing.key_number)
    return command_seal(command_encode(outgoing.command), agent=agent, key=key, signing=signing)


@lru_cache(maxsize=1)
def impatient_client(url: str) -> redis.Redis:
    """Return a client with short timeouts, because the plan is soon repeated. It replaces a dead connection once."""
    return redis.Redis.from_url(
        url,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 1),
    )
