"""Where vectors lie in an arena, and moving their bytes there and back with torch.

An address is a byte offset. Bytes move in the widest elements that divide their number: an index for every 16 bytes
instead of one for every byte makes torch's copies as fast as memory.
"""

from math import gcd
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from kernels.formats import VectorFormat
from kernels.layout import PageLayout

Side = Literal["key", "value"]

_ELEMENTS = {16: torch.complex128, 8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


class Section(NamedTuple):
    """Keys or values of a layer: where codes and scales begin within the layer, and how far vectors are apart."""

    vector: VectorFormat
    codes_at: int
    scales_at: int
    code_bytes: int
    scale_bytes: int


def section(layout: PageLayout, side: Side) -> Section:
    """One half of what a layer's page holds."""
    if side == "key":
        return Section(layout.kv_format.key, 0, layout.key_scales_at, layout.key_code_bytes, layout.key_scale_bytes)
    return Section(
        layout.kv_format.value,
        layout.value_codes_at,
        layout.value_scales_at,
        layout.value_code_bytes,
        layout.value_scale_bytes,
    )


def vector_places(layout: PageLayout, part: Section, layers_at: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """Addresses of codes and of scales, [..., kv_heads], of the tokens in `slots` of pages whose layer begins there."""
    heads = torch.arange(layout.kv_heads, device=layers_at.device)
    vector = heads * layout.block_tokens + slots.unsqueeze(-1)
    begin = layers_at.unsqueeze(-1)
    return begin + part.codes_at + vector * part.code_bytes, begin + part.scales_at + vector * part.scale_bytes


def gather_bytes(arena: Tensor, places: Tensor, size: int) -> Tensor:
    """uint8 [..., size] from the addresses [...]."""
    elements, index = _elements(arena, places, size)
    return elements.index_select(0, index).view(torch.uint8).view(*places.shape, size)


def scatter_bytes(arena: Tensor, places: Tensor, rows: Tensor) -> None:
    """uint8 [..., size] to the addresses [...]."""
    if rows.shape[-1] == 0:
        return
    elements, index = _elements(arena, places, rows.shape[-1])
    elements.index_copy_(0, index, rows.contiguous().flatten().view(elements.dtype))


def _elements(arena: Tensor, places: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The arena in elements as wide as `size` and every address allow, and the index of each one meant."""
    width = gcd(max(size, 1), 16)
    elements = arena[: arena.numel() // width * width].view(_ELEMENTS[width])
    steps = torch.arange(size // width, device=places.device)
    return elements, (places.unsqueeze(-1) // width + steps).flatten()
