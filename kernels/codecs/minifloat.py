"""Floating point in 8 and 4 bits, by integer shifts: E4M3, E5M2 and E2M1.

A minifloat is a shorter float32: the same sign, fewer exponent bits around another bias, fewer mantissa bits. Encoding
adds half of what is dropped to float32's bits and shifts; below the smallest normal number it adds a power of two
instead, whose last bit weighs what the code's last bit weighs. Decoding shifts the code into a longer float whose
exponent is too small by a known amount and multiplies that back. All codes are exact, subnormals too; what is too large
saturates; the codes that would be NaN or infinity are never made.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.dispatch import jit, tl


@dataclass(frozen=True, slots=True)
class Minifloat:
    """One sign bit, then `exponent` bits, then `mantissa` bits."""

    exponent: int
    mantissa: int
    largest: float

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.mantissa)

    @property
    def half_scale(self) -> float:
        """What `to_half` is too small by."""
        return float(2 ** (15 - self.bias))


E4M3 = Minifloat(exponent=4, mantissa=3, largest=448.0)
E5M2 = Minifloat(exponent=5, mantissa=2, largest=57344.0)
E2M1 = Minifloat(exponent=2, mantissa=1, largest=6.0)


def encode(x: Tensor, kind: Minifloat) -> Tensor:
    """Codes as uint8 of finite float32, half to even, saturating."""
    size = x.abs().clamp_max_(kind.largest)
    weight = 1 - kind.bias - kind.mantissa + 23  # a power of two whose float32 ends where the code ends
    subnormal = (size + 2.0**weight).view(torch.int32).sub_((weight + 127) << 23)
    bits, drop = size.view(torch.int32), 23 - kind.mantissa
    odd = (bits >> drop).bitwise_and_(1)
    normal = odd.add_(bits).add_((1 << (drop - 1)) - 1).bitwise_right_shift_(drop)
    normal.sub_((127 - kind.bias) << kind.mantissa)
    # Each is the larger one where it holds. (No `where`: with numbers for arguments it computes in int64.)
    codes = torch.maximum(normal, subnormal.clamp_max_(1 << kind.mantissa))
    return codes.bitwise_or_((x.view(torch.int32) >> 31).bitwise_and_(kind.sign)).to(torch.uint8)


def to_half(codes: Tensor, kind: Minifloat) -> Tensor:
    """The codes' values as float32, divided by `half_scale`."""
    if kind is E2M1:
        wide = codes.to(torch.int16)
        shifted = ((wide & 7) << 9).bitwise_or_(wide.bitwise_and_(8).bitwise_left_shift_(12))
        return shifted.view(torch.float16).float()
    # A byte as int8 brings its sign along, E4M3 once more below it. No `where`: it would compute in int64.
    shifted = codes.view(torch.int8).to(torch.int16).bitwise_left_shift_(10 - kind.mantissa)
    return (shifted.bitwise_and_(~0x4000) if kind is E4M3 else shifted).view(torch.float16).float()


def decode(codes: Tensor, kind: Minifloat) -> Tensor:
    """The codes' values as float32, exactly."""
    return to_half(codes, kind) * kind.half_scale


@jit
def encode_minifloat(x, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, LARGEST: tl.constexpr):  # type: ignore[no-untyped-def]
    """Codes as int32 of finite float32; `encode` above, step by step."""
    bias: tl.constexpr = (1 << (EXPONENT - 1)) - 1
    drop: tl.constexpr = 23 - MANTISSA
    size = tl.minimum(tl.abs(x), LARGEST)
    bits = size.to(tl.int32, bitcast=True)
    normal = ((bits + ((1 << (drop - 1)) - 1) + ((bits >> drop) & 1)) >> drop) - ((127 - bias) << MANTISSA)
    weight: tl.constexpr = 1 - bias - MANTISSA + 23
    subnormal = (size + 2.0**weight).to(tl.int32, bitcast=True) - ((weight + 127) << 23)
    codes = tl.where(size < 2.0 ** (1 - bias), subnormal, normal)
    return tl.where(x.to(tl.int32, bitcast=True) < 0, codes | (1 << (EXPONENT + MANTISSA)), codes)


@jit
def decode_minifloat(codes, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr):  # type: ignore[no-untyped-def]
    """Values as bfloat16, exactly: it has room for every mantissa and, after the product, for every exponent."""
    bias: tl.constexpr = (1 << (EXPONENT - 1)) - 1
    sign: tl.constexpr = 1 << (EXPONENT + MANTISSA)
    wide = codes.to(tl.int32)
    bits = ((wide & (sign - 1)) << (23 - MANTISSA)) | ((wide & sign) << (31 - EXPONENT - MANTISSA))
    # Through float32: Triton's interpreter takes a subnormal bfloat16 for 0.
    return (bits.to(tl.float32, bitcast=True) * 2.0 ** (127 - bias)).to(tl.bfloat16)
