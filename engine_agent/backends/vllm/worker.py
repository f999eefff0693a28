"""The extension of vLLM's worker (`--worker-extension-cls …worker.PolicyWorker`). Imports torch."""

from typing import Any

from engine_agent.backends.vllm.self_test import PROBED, attention_error
from engine_agent.backends.vllm.zeroing import zero_pages


class PolicyWorker:
    model_runner: Any  # vLLM's

    def luminet_attention_error(self) -> float:
        """Return the attention error of the worker's format, measured in the still unused cache, and zero it."""
        runner = self.model_runner
        group = runner.attn_groups[0][0]
        layer = runner.compilation_config.static_forward_context[group.layer_names[0]]
        cache = layer.kv_cache
        width = group.kernel_block_size or group.kv_cache_spec.block_size
        dtype = runner.model_config.dtype
        try:
            return attention_error(layer, group.get_metadata_builder(), cache, block_tokens=width, dtype=dtype)
        finally:
            zero_pages(cache, range(1, 1 + -(-PROBED // width)), cache.shape[0])
