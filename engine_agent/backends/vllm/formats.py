"""What KV formats are called: by vLLM, by us, and which of vLLM's are served at all. Standard library only."""

from collections.abc import Sequence
from typing import Any

# By vLLM's `kv_cache_dtype`, the name of what is really computed and other names it answers to.
FORMATS = {
    "bfloat16": ("bf16",),
    "fp8": ("fp8_e4m3", "fp8"),
    "fp8_e4m3": ("fp8_e4m3", "fp8"),
    "fp8_e5m2": ("fp8_e5m2",),
}
# Formats that policies name as well, and some of vLLM's builds take without computing them: served where its worker is
# ours, because then attention is compared with plain torch before anybody is served (self_test.py).
TESTED_FORMATS = {"int8_per_token_head": ("int8",), "int4_per_token_head": ("int4",), "nvfp4": ("nvfp4",)}
WORKER = "engine_agent.backends.vllm.worker.PolicyWorker"
OF_DTYPE = {"bfloat16": ("bf16",), "float32": ("fp32",), "float16": ("fp16",)}  # `auto`: the model's own
VLLM_DTYPES = {
    "auto": "auto",
    "bf16": "bfloat16",
    "fp8": "fp8_e4m3",
    "fp8_e4m3": "fp8_e4m3",
    "fp8_e5m2": "fp8_e5m2",
    "int8": "int8_per_token_head",
    "int4": "int4_per_token_head",
    "nvfp4": "nvfp4",
}


class UnservedFormat(Exception):
    """A `kv_cache_dtype` of vLLM's that no policy names, or that nobody would test here."""


def names_of(kv_cache_dtype: str, model_dtype: str, *, is_tested: bool = False) -> tuple[str, ...]:
    """Raises UnservedFormat."""
    if kv_cache_dtype in ("auto", model_dtype):
        if model_dtype in OF_DTYPE:
            return OF_DTYPE[model_dtype]
    elif kv_cache_dtype in FORMATS:
        return FORMATS[kv_cache_dtype]
    elif kv_cache_dtype in TESTED_FORMATS and is_tested:
        return TESTED_FORMATS[kv_cache_dtype]
    raise UnservedFormat(
        f"kv_cache_dtype {kv_cache_dtype!r} is not served under policies, only auto, {', '.join(FORMATS)}"
    )


def aliases(names: Sequence[str]) -> dict[str, str]:
    """Of the names of one format: those that are not what is computed, with the one that is."""
    return dict.fromkeys(names[1:], names[0])


def served_names(vllm_config: Any) -> tuple[str, ...]:
    """Of a vLLM's configuration. Raises UnservedFormat."""
    model_dtype = str(vllm_config.model_config.dtype).removeprefix("torch.")
    is_tested = vllm_config.parallel_config.worker_extension_cls == WORKER
    return names_of(str(vllm_config.cache_config.cache_dtype), model_dtype, is_tested=is_tested)
