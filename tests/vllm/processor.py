"""Which KV format vLLM can keep on this processor: its kernels for FP8 need AVX-512 or AMX."""

from functools import cache
from typing import Final

from engine_agent.backends.vllm.launch import check_processor, processor_flags
from engine_agent.engine.errors import BadSetting

COMPUTED_AS: Final = {"fp8": "fp8_e4m3", "bf16": "bf16"}  # what vLLM says that it keeps


@cache
def vllm_format() -> str:
    try:
        check_processor("fp8", processor_flags())
    except BadSetting:
        return "bf16"
    return "fp8"
