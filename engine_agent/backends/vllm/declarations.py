"""The enforcement that vLLM declares to the control plane. Imports no engine."""

from engine_agent.backends.declarations import BY_THE_BLOCK_MANAGER, NO_DISK_TIER
from engine_agent.contracts.enforcement import ENFORCED, Enforcement, Graded, declared

NO_HOST_TIER = Graded("refused", "vLLM has no host tier under policies")
STEPS_UNWEIGHTED = Graded(
    "best_effort", "weights count for admission and eviction; vLLM shares out each step's compute"
)
UNTESTED_ON_GPU = Graded("untested", "vLLM under policies was never run on a GPU")


def vllm_enforcement(*, is_gpu: bool) -> Enforcement:
    """Return the declaration of vLLM under our scheduler, which refuses connectors and so has one tier."""
    offload = {"none": ENFORCED, "host": NO_HOST_TIER, "disk": NO_DISK_TIER}
    if is_gpu:
        untested = dict.fromkeys((*BY_THE_BLOCK_MANAGER, "weight"), UNTESTED_ON_GPU)
        return declared({**untested, "offload": {**offload, "none": UNTESTED_ON_GPU}})
    return declared({**BY_THE_BLOCK_MANAGER, "weight": STEPS_UNWEIGHTED, "offload": offload})
