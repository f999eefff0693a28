"""The choice of the request to preempt when an answer needs a block and none is free: a decision, as data.

It is the last request to arrive in the namespace that uses most, for its weight, beyond its reservation. At its own
limit, a namespace preempts only its own requests. The asking request may itself be preempted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Holder(Generic[Key]):
    """A running request. `used_bytes`: by all running requests of its namespace."""

    key: Key
    namespace: str
    is_customer: bool
    rank: tuple[float, ...]
    used_bytes: int
    reserved_bytes: int
    weight: float


def victim(holders: Iterable[Holder[Key]], requester: Holder[Key], *, is_own_limit: bool) -> Holder[Key]:
    """Return the request to preempt, never one of another namespace that is within its reservation."""
    eligible = [requester]
    for holder in holders:
        is_own = holder.namespace == requester.namespace
        is_over = not is_own_limit and holder.used_bytes > holder.reserved_bytes
        if holder.key is not requester.key and (is_own or is_over):
            eligible.append(holder)
    return max(eligible, key=_turn)


def _turn(holder: Holder[Key]) -> tuple[bool, float, str, tuple[float, ...]]:
    excess = (holder.used_bytes - holder.reserved_bytes) / holder.weight
    return not holder.is_customer, excess, holder.namespace, holder.rank
