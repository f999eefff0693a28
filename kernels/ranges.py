"""Pages in an arena as ranges of bytes, checked on the host before any of them is touched. What the page ops share."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.errors import InvalidArgument
from kernels.layout import ALIGNMENT
from kernels.tables import arena_checked, offsets_checked

Offsets = Sequence[int] | Tensor  # byte offsets, on the host


def ranges_checked(arena: Tensor, name: str, offsets: Offsets, size_bytes: int) -> list[int]:
    """The offsets, each of which begins `size_bytes` within the arena. Raises InvalidArgument."""
    if type(size_bytes) is not int or size_bytes < ALIGNMENT or size_bytes % ALIGNMENT:
        raise InvalidArgument("size_bytes", size_bytes, f"a multiple of {ALIGNMENT} above 0")
    return offsets_checked(name, _on_host(name, offsets), size_bytes, arena_checked(arena).numel())


def units(offsets: Sequence[int], device: torch.device) -> Tensor:
    """Offsets as the page kernels take them: in steps of 16 bytes, from which Triton sees that they are aligned."""
    return (torch.tensor(offsets, dtype=torch.int64) // ALIGNMENT).to(device, non_blocking=True)


def _on_host(name: str, offsets: Offsets) -> Sequence[int]:
    if not isinstance(offsets, Tensor):
        return offsets
    if offsets.dtype != torch.int64 or offsets.ndim != 1 or offsets.device.type != "cpu":
        found = f"{offsets.dtype} {tuple(offsets.shape)} on {offsets.device}"
        raise InvalidArgument(name, found, "a list of whole numbers, or int64 [pages] on the CPU")
    listed: list[int] = offsets.tolist()
    return listed
