"""The default number type of a model."""

from pathlib import Path

import torch

from engine_agent.engine.config import ModelConfig
from engine_agent.engine.errors import EngineError
from engine_agent.engine.weights import stored_dtype

AUTO = "auto"
SERVED = {"float32": torch.float32, "fp32": torch.float32, "bfloat16": torch.bfloat16, "bf16": torch.bfloat16}
DTYPE_NAMES = (AUTO, *SERVED)


class BadDtype(EngineError):
    """A name that is not in `DTYPE_NAMES`."""


def serving_dtype(
    folder: Path, config: ModelConfig, *, device: torch.device | str = "cpu", asked: str = AUTO
) -> torch.dtype:
    """Return the requested dtype, or choose one for `auto`.

    `auto` is bfloat16 on a GPU. On a CPU it is bfloat16 if the CPU computes in it and the weights have 16 bits,
    otherwise float32. Raises BadDtype, BadModel, OSError.
    """
    if asked in SERVED:
        return SERVED[asked]
    if asked != AUTO:
        raise BadDtype(f"dtype: {asked!r} is none of {', '.join(DTYPE_NAMES)}")
    if torch.device(device).type != "cpu":
        return torch.bfloat16
    is_half = stored_dtype(folder, config) in ("BF16", "F16")
    return torch.bfloat16 if is_half and cpu_has_bfloat16() else torch.float32


def cpu_has_bfloat16() -> bool:
    """Return whether the CPU multiplies bfloat16 matrices natively, without a conversion of each number."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
