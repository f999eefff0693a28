"""What lies in an agent's queue at the broker, opened with the agent's own keys."""

import base64
import json
from typing import Any

import redis
from django.conf import settings

from controlplane.fleet.broker import queue_key
from controlplane.fleet.keys import sealing_key, verifying_key
from controlplane.fleet.models import Agent
from engine_agent.contracts import sealing
from engine_agent.contracts.protocol import Snapshot, change_apply, change_decode
from engine_agent.contracts.wire import COMMAND_TASK, Command, command_decode


def broker() -> redis.Redis:
    return redis.Redis.from_url(settings.ENVIRONMENT.redis_url)


def messages_taken(agent: str) -> list[dict[str, Any]]:
    """Oldest first; the queue is empty afterwards."""
    with broker() as client:
        found = client.lrange(queue_key(agent), 0, -1)
        client.delete(queue_key(agent))
    return [json.loads(one) for one in reversed(found)]


def commands_taken(agent: str, *, key_number: int = 1) -> list[Command]:
    """As the agent opens them."""
    found = []
    for message in messages_taken(agent):
        assert message["headers"]["task"] == COMMAND_TASK
        ((sealed,), _, _) = json.loads(base64.b64decode(message["body"]))
        key, verifying = sealing_key(agent, key_number), sealing.verifying_key(verifying_key())
        found.append(command_decode(sealing.command_open(sealed, agent=agent, key=key, verifying=verifying)))
    return found


def change_followed(command: Command, held: Snapshot) -> Snapshot:
    """What the agent holds once it has done what it was told."""
    return change_apply(held, change_decode(base64.b64decode(command.body["change"])))


def acknowledged(*agents: str) -> None:
    """They hold what they are to hold, and have said so."""
    for one in Agent.objects.filter(pk__in=agents):
        one.applied_generation, one.applied_hash = one.desired_generation, one.desired_hash
        one.save(update_fields=["applied_generation", "applied_hash"])
