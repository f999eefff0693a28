"""The enforcement that our own engine declares to the control plane. Imports no engine."""

from collections.abc import Collection

from engine_agent.backends.declarations import BY_THE_BLOCK_MANAGER, NO_DISK_TIER
from engine_agent.contracts.enforcement import ENFORCED, Enforcement, Graded, declared

NO_HOST_POOL = Graded("refused", "no host pool: start it with --host-pool")
NOT_WORTH_LOADING = Graded("refused", "its host pool is unused: loading a block takes longer than computing it again")


def paged_enforcement(
    *, host_pool_bytes: int, host_formats: Collection[str], kv_formats: Collection[str]
) -> Enforcement:
    """Return the declaration of our own engine. `host_formats`: those that its host pool stores."""
    weight = ENFORCED  # engine/shares.py: also of each step's compute
    host = _host(host_pool_bytes, host_formats, kv_formats)
    offload = {"none": ENFORCED, "host": host, "disk": NO_DISK_TIER}
    return declared({**BY_THE_BLOCK_MANAGER, "weight": weight, "offload": offload})


def _host(pool_bytes: int, host_formats: Collection[str], kv_formats: Collection[str]) -> Graded:
    """Return the host tier's grade. At its start the engine measures which formats load faster than they compute."""
    if not pool_bytes:
        return NO_HOST_POOL
    if not host_formats:
        return NOT_WORTH_LOADING
    if {*kv_formats} <= {*host_formats}:
        return ENFORCED
    return Graded("best_effort", f"its host pool keeps {', '.join(sorted(host_formats))} alone")
