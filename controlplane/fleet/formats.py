"""The KV formats that policies in force need, by group of agents. Reads only."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache

from controlplane.fleet.health import Needed
from controlplane.fleet.in_force import Chain, chains_in_force, trail_head
from tenants.policy import effective_values, models_naming

KV_DTYPE = frozenset({"kv_dtype"})
NONE: frozenset[Needed] = frozenset()


def formats_needed() -> Mapping[int, frozenset[Needed]]:
    """Return the KV formats that namespaces use, by the group that serves them. Cached until the audit trail grows."""
    return _formats_at(*trail_head())


@lru_cache(maxsize=1)
def _formats_at(seq: int, hash_: bytes) -> Mapping[int, frozenset[Needed]]:
    needed_by_group = defaultdict[int, set[Needed]](set)
    for group, chain in chains_in_force():
        needed_by_group[group].update(_needed(chain))
    return {group: frozenset(needed) for group, needed in needed_by_group.items()}


def _needed(chain: Chain) -> Iterator[Needed]:
    yield Needed(effective_values(chain)["kv_dtype"])
    for model in models_naming(chain, KV_DTYPE):
        yield Needed(effective_values(chain, model)["kv_dtype"], model)
