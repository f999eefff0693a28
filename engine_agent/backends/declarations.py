"""What each backend enforces of a policy, as it declares it to the control plane. Imports no engine.

Each line is true of the code that it names, and tested there; docs/enforcement.md is the same as a table.
"""

from collections.abc import Collection

from engine_agent.contracts.enforcement import ENFORCED, Enforcement, Graded, declared
from engine_agent.contracts.policy_fields import names

NO_HOST_POOL = Graded("refused", "no host pool: start it with --host-pool")
NOT_WORTH_LOADING = Graded("refused", "its host pool is unused: loading a block takes longer than computing it again")
NO_DISK_TIER = Graded("refused", "no disk tier")
NO_HOST_TIER = Graded("refused", "vLLM has no host tier under policies")
STEPS_UNWEIGHTED = Graded(
    "best_effort", "weights count for admission and eviction; vLLM shares out each step's compute"
)
UNTESTED_ON_GPU = Graded("untested", "vLLM under policies was never run on a GPU")

# Decided by the block manager (engine_agent/cache), which is the same in both backends, before anything is computed.
BY_THE_BLOCK_MANAGER = dict.fromkeys(names(lambda field: field.enforcer == "block manager"), ENFORCED)


def paged_enforcement(
    *, host_pool_bytes: int, host_formats: Collection[str], kv_formats: Collection[str]
) -> Enforcement:
    """Of our own engine. `host_formats`: those that its host pool keeps."""
    weight = ENFORCED  # engine/shares.py: of each step's compute, too
    host = _host(host_pool_bytes, host_formats, kv_formats)
    offload = {"none": ENFORCED, "host": host, "disk": NO_DISK_TIER}
    return declared({**BY_THE_BLOCK_MANAGER, "weight": weight, "offload": offload})


def _host(pool_bytes: int, host_formats: Collection[str], kv_formats: Collection[str]) -> Graded:
    """The engine measures at its start which formats load sooner than they are computed again, and keeps these."""
    if not pool_bytes:
        return NO_HOST_POOL
    if not host_formats:
        return NOT_WORTH_LOADING
    if {*kv_formats} <= {*host_formats}:
        return ENFORCED
    return Graded("best_effort", f"its host pool keeps {', '.join(sorted(host_formats))} alone")


def vllm_enforcement(*, is_gpu: bool) -> Enforcement:
    """Of vLLM under our scheduler, which refuses connectors and so has one tier."""
    offload = {"none": ENFORCED, "host": NO_HOST_TIER, "disk": NO_DISK_TIER}
    if is_gpu:
        untested = dict.fromkeys((*BY_THE_BLOCK_MANAGER, "weight"), UNTESTED_ON_GPU)
        return declared({**untested, "offload": {**offload, "none": UNTESTED_ON_GPU}})
    return declared({**BY_THE_BLOCK_MANAGER, "weight": STEPS_UNWEIGHTED, "offload": offload})
