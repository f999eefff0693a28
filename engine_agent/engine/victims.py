"""Who gives way when an answer needs a block and there is none: a decision, as data.

The namespace that uses most for its weight beyond what is reserved for it, and in it whoever came last. Whoever is at
its own limit takes from its own namespace alone. The one that asks may be the one that gives way.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Holder(Generic[Key]):
    """A running request. `used_bytes`: by all that runs in its namespace."""

    key: Key
    namespace: str
    is_customer: bool
    rank: tuple[float, ...]
    used_bytes: int
    reserved_bytes: int
    weight: float


def victim(holders: Iterable[Holder[Key]], asking: Holder[Key], *, is_own_limit: bool) -> Holder[Key]:
    """Never one of another namespace that is within its reservation."""
    eligible = [asking]
    for holder in holders:
        is_own = holder.namespace == asking.namespace
        is_over = not is_own_limit and holder.used_bytes > holder.reserved_bytes
        if holder.key is not asking.key and (is_own or is_over):
            eligible.append(holder)
    return max(eligible, key=_turn)


def _turn(holder: Holder[Key]) -> tuple[bool, float, str, tuple[float, ...]]:
    over = (holder.used_bytes - holder.reserved_bytes) / holder.weight
    return not holder.is_customer, over, holder.namespace, holder.rank
