"""Which KV format vLLM can keep on this processor: its kernels for FP8 need AVX-512 or AMX."""

from functools import cache
from pathlib import Path
from typing import Final

FOR_FP8: Final = {"avx512f", "amx_tile"}
COMPUTED_AS: Final = {"fp8": "fp8_e4m3", "bf16": "bf16"}  # what vLLM says that it keeps


@cache
def vllm_format() -> str:
    return "fp8" if FOR_FP8 & _flags() else "bf16"


def _flags() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    return {flag for line in lines if line.startswith("flags") for flag in line.split(":", 1)[1].split()}
