"""Vectors in every format: the codecs behind two pairs of functions, one for torch and one for Triton.

A stored vector reads as units × scale: units are exact in bfloat16, the scale is one number for the vector, so that
attention can apply it to a score instead of to each element. *Kept* means as stored: rotated where the format
rotates, without the mean that calibration took off. Where bytes lie is the business of `layout.py`.

Torch finds a codec by the registry in `formats.py`; Triton, by a branch in `load_vectors` and `store_vectors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from torch import Tensor

from kernels.codecs.fp8 import load_fp8, store_fp8
from kernels.codecs.int8 import load_int8, store_int8
from kernels.codecs.nvfp4 import load_nvfp4, store_nvfp4
from kernels.codecs.packed import load_packed, store_packed
from kernels.codecs.plain import load_plain, store_plain
from kernels.dispatch import jit, tl
from kernels.formats import KV_FORMATS, VectorFormat
from kernels.fwht import fwht, rotate_rows

LARGEST = 1e30  # what is not raw saturates here: more would not survive being added up, and nothing real comes near


class Codec(Protocol):
    """What a module of `kernels/codecs/` offers torch."""

    def encode(self, x: Tensor, vector: VectorFormat, static_scale: Tensor | None) -> tuple[Tensor, Tensor]:
        """float32 [..., head_size] → codes and scales, both uint8 [..., bytes]."""
        ...

    def units_and_scale(
        self, codes: Tensor, scales: Tensor, vector: VectorFormat, head_size: int, static_scale: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """What was kept is units [..., head_size] times scale [..., 1], or units alone."""
        ...


def _codec(name: str) -> Codec:
    return cast(Codec, import_module(f"kernels.codecs.{name}"))


_CODECS = {
    vector.name: _codec(vector.codec)
    for kv_format in KV_FORMATS.values()
    for vector in (kv_format.key, kv_format.value)
}


def encode(x: Tensor, vector: VectorFormat, static_scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Codes and scales as uint8 of finite vectors [..., head_size]. `static_scale` broadcasts against [..., 1]."""
    wide = x.float() if vector.is_raw else x.float().clamp(-LARGEST, LARGEST)
    if vector.is_rotated:
        wide = fwht(wide)
    return _CODECS[vector.name].encode(wide, vector, static_scale)


def units_and_scale(
    codes: Tensor, scales: Tensor, vector: VectorFormat, head_size: int, static_scale: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """What is kept, as units [..., head_size] and the scale [..., 1] they are to be multiplied with, if any."""
    return _CODECS[vector.name].units_and_scale(codes, scales, vector, head_size, static_scale)


def decode_kept(
    codes: Tensor, scales: Tensor, vector: VectorFormat, head_size: int, static_scale: Tensor | None = None
) -> Tensor:
    """What is kept, as float32 [..., head_size]."""
    units, scale = units_and_scale(codes, scales, vector, head_size, static_scale)
    return units if scale is None else units * scale


def decode(
    codes: Tensor, scales: Tensor, vector: VectorFormat, head_size: int, static_scale: Tensor | None = None
) -> Tensor:
    """The vectors as they were before they were encoded, as well as the format remembers them."""
    kept = decode_kept(codes, scales, vector, head_size, static_scale)
    return fwht(kept, inverse=True) if vector.is_rotated else kept


@jit
def finite_rows(x):  # type: ignore[no-untyped-def]
    """The tile with zeros for each row that has a NaN or an infinity, and how many elements of a row are such."""
    broken = ~(tl.abs(x) <= 3.4028234663852886e38)  # NaN is not below anything either
    count = tl.sum(broken.to(tl.int32), axis=1)
    return tl.where((count > 0)[:, None], 0.0, x), count


@jit
def ready_rows(x, RAW: tl.constexpr, ROTATED: tl.constexpr, N: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr):  # type: ignore[no-untyped-def]
    """What `store_vectors` takes: a finite tile, saturated and rotated as the format asks."""
    if not RAW:
        x = tl.minimum(tl.maximum(x, -1e30), 1e30)
    if ROTATED:
        x = rotate_rows(x, N, D, BLOCK_D, False)
    return x


@jit
def load_vectors(  # type: ignore[no-untyped-def]
    arena, codes_at, scales_at, mask, static_scale,
    VECTOR: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Units [N, BLOCK_D] in bfloat16 (float32 of `fp32`) and scales [N] of vectors whose codes and scales lie at
    these bytes; 0 beyond D and where masked. `static_scale` is the head's."""
    d = tl.arange(0, BLOCK_D)
    inside = mask[:, None] & (d < D)[None, :]
    ones = tl.where(mask, 1.0, 0.0)
    if VECTOR != "int4" and VECTOR != "int2" and VECTOR != "nvfp4":
        codes_at = tl.multiple_of(codes_at, 16)  # 16 elements of at least a byte: a thread loads 16 bytes at once
    if VECTOR == "fp32" or VECTOR == "bf16":  # Triton knows no tuples of strings
        return load_plain(arena, codes_at, inside, d, VECTOR), ones
    elif VECTOR == "e4m3" or VECTOR == "e5m2":
        return load_fp8(arena, codes_at, mask, inside, d, VECTOR, D), ones * static_scale
    elif VECTOR == "int8":
        return load_int8(arena, codes_at, scales_at, mask, inside, d, D)
    elif VECTOR == "int4":
        return load_packed(arena, codes_at, scales_at, mask, inside, d, 4, D)
    elif VECTOR == "int2":
        return load_packed(arena, codes_at, scales_at, mask, inside, d, 2, D)
    else:
        tl.static_assert(VECTOR == "nvfp4")
        return load_nvfp4(arena, codes_at, scales_at, mask, inside, d, D), ones * static_scale


@jit
def store_vectors(  # type: ignore[no-untyped-def]
    arena, codes_at, scales_at, mask, x, static_scale,
    VECTOR: tl.constexpr, D: tl.constexpr, N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Encode a float32 tile [N, BLOCK_D] that `ready_rows` made ready, 0 beyond D."""
    d = tl.arange(0, BLOCK_D)
    inside = mask[:, None] & (d < D)[None, :]
    if VECTOR == "fp32" or VECTOR == "bf16":
        store_plain(arena, codes_at, inside, d, x, VECTOR)
    elif VECTOR == "e4m3" or VECTOR == "e5m2":
        store_fp8(arena, codes_at, inside, d, x, static_scale, VECTOR)
    elif VECTOR == "int8":
        store_int8(arena, codes_at, scales_at, mask, inside, d, x)
    elif VECTOR == "int4":
        store_packed(arena, codes_at, scales_at, mask, inside, x, 4, D, N, BLOCK_D)
    elif VECTOR == "int2":
        store_packed(arena, codes_at, scales_at, mask, inside, x, 2, D, N, BLOCK_D)
    else:
        tl.static_assert(VECTOR == "nvfp4")
        store_nvfp4(arena, codes_at, scales_at, mask, x, static_scale, D, N, BLOCK_D)
