"""The names of KV formats in vLLM and here, and which of vLLM's are served. Standard library only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class VllmFormat:
    """One of our formats in vLLM."""

    dtype: str  # its `kv_cache_dtype`
    is_in_every_build: bool = False  # others are served only after a comparison of attention with torch
    most_error: float = 0.3  # of attention by rounding alone, relative to the result's length


# The formats of kernels/formats.py that vLLM has. They are listed here because the plugin for stock vLLM must not
# contain a package `kernels`: that name belongs to another package (docs/decisions/0019-registries.md).
VLLM_FORMATS: Mapping[str, VllmFormat] = {
    "bf16": VllmFormat("bfloat16", is_in_every_build=True, most_error=0.03),
    "fp8": VllmFormat("fp8_e4m3", is_in_every_build=True, most_error=0.12),
    "fp8_e4m3": VllmFormat("fp8_e4m3", is_in_every_build=True, most_error=0.12),
    "fp8_e5m2": VllmFormat("fp8_e5m2", is_in_every_build=True, most_error=0.24),
    "int8": VllmFormat("int8_per_token_head", most_error=0.03),
    "int4": VllmFormat("int4_per_token_head"),
    "nvfp4": VllmFormat("nvfp4"),
}
VLLM_DTYPES = {"auto": "auto"} | {name: vllm_format.dtype for name, vllm_format in VLLM_FORMATS.items()}
OF_DTYPE = {"bfloat16": ("bf16",), "float32": ("fp32",), "float16": ("fp16",)}  # `auto`: the model's own
SYNONYMS = {"fp8": "fp8_e4m3"}  # of vLLM's own names
WORKER = "engine_agent.backends.vllm.worker.PolicyWorker"


class UnservedFormat(Exception):
    """A `kv_cache_dtype` of vLLM that no policy names or that is not tested here."""


def _names(*, in_every_build: bool) -> dict[str, tuple[str, ...]]:
    """Return the name of the computed format and its aliases by vLLM's `kv_cache_dtype`."""
    names_by_dtype: dict[str, tuple[str, ...]] = {}
    for name, vllm_format in VLLM_FORMATS.items():
        if vllm_format.is_in_every_build == in_every_build:
            other_names = names_by_dtype.get(vllm_format.dtype, ())
            names_by_dtype[vllm_format.dtype] = (
                (name, *other_names) if name == vllm_format.dtype else (*other_names, name)
            )
    return names_by_dtype


FORMATS = _names(in_every_build=True)
FORMATS |= {synonym: FORMATS[dtype] for synonym, dtype in SYNONYMS.items()}
# Formats in policies that some vLLM builds accept without computing them. They are served only with our worker, which
# compares attention with plain torch before the first request (self_test.py).
TESTED_FORMATS = _names(in_every_build=False)


def names_of(kv_cache_dtype: str, model_dtype: str, *, is_tested: bool = False) -> tuple[str, ...]:
    """Return our names of a `kv_cache_dtype`. Raises UnservedFormat."""
    if kv_cache_dtype in ("auto", model_dtype):
        if model_dtype in OF_DTYPE:
            return OF_DTYPE[model_dtype]
    elif kv_cache_dtype in FORMATS:
        return FORMATS[kv_cache_dtype]
    elif kv_cache_dtype in TESTED_FORMATS and is_tested:
        return TESTED_FORMATS[kv_cache_dtype]
    served = ", ".join(sorted(FORMATS))
    raise UnservedFormat(f"kv_cache_dtype {kv_cache_dtype!r} is not served under policies, only auto, {served}")


def aliases(names: Sequence[str]) -> dict[str, str]:
    """Return the aliases among the names of one format, each with the computed format."""
    return dict.fromkeys(names[1:], names[0])


def served_names(vllm_config: Any) -> tuple[str, ...]:
    """Return the names in a vLLM configuration. Raises UnservedFormat."""
    model_dtype = str(vllm_config.model_config.dtype).removeprefix("torch.")
    is_tested = vllm_config.parallel_config.worker_extension_cls == WORKER
    return names_of(str(vllm_config.cache_config.cache_dtype), model_dtype, is_tested=is_tested)
