"""Which KV formats policies in force need, by group of agents. Reads only."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast

from controlplane.fleet.health import Needed
from tenants.models import AuditHead, Namespace, Organisation, PolicyLevel
from tenants.policy import Values, effective_values, models_naming

KV_DTYPE = frozenset({"kv_dtype"})
NONE: frozenset[Needed] = frozenset()


def formats_needed() -> Mapping[int, frozenset[Needed]]:
    """In what somebody's namespaces are kept, by the group that serves them. Read anew after something was done."""
    seq, hash_ = AuditHead.objects.filter(pk=1).values_list("seq", "hash").first() or (0, b"")
    return _formats_at(seq, bytes(hash_))


@lru_cache(maxsize=1)
def _formats_at(seq: int, hash_: bytes) -> Mapping[int, frozenset[Needed]]:
    """The audit trail's head names a moment: of two trails, which a backup makes possible, the hash tells which."""
    fleet = PolicyLevel.objects.filter(kind=PolicyLevel.Kind.FLEET).values_list("policy", flat=True).first() or {}
    found = defaultdict[int, set[Needed]](set)
    for group, organisation, namespace in _policies():
        found[group].update(_needed((fleet, json.loads(organisation), json.loads(namespace))))
    return {group: frozenset(needed) for group, needed in found.items()}


def _policies() -> Any:
    """Of the living, each combination once: thousands of namespaces say the same."""
    living = Namespace.objects.filter(deleted_at=None).exclude(organisation__state=Organisation.State.DELETED)
    return (
        living.order_by()
        .values_list(
            "group_id",
            Cast("organisation__policy_level__policy", TextField()),
            Cast("policy_level__policy", TextField()),
        )
        .distinct()
    )


def _needed(chain: tuple[Values, Values, Values]) -> Iterator[Needed]:
    yield Needed(effective_values(chain)["kv_dtype"])
    for model in models_naming(chain, KV_DTYPE):
        yield Needed(effective_values(chain, model)["kv_dtype"], model)
