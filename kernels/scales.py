"""A scale set: what calibration found out about one model, for one KV format.

Two things help a format that has few bits: one *static scale* for each layer and head (formats that carry no scale of
their own divide by it before they encode), and *key means* (taken off each key before it is encoded; a query's
scores all shift by the same amount, which softmax does not see, so nobody adds them back). Both change the bytes that
are stored, so a scale set's digest is part of the root of every chain: no set reads what another wrote.
"""

from dataclasses import dataclass, fields
from hashlib import sha256

import torch
from torch import Tensor

from kernels.errors import InvalidArgument
from kernels.layout import PageLayout

NEUTRAL = ""  # the digest of a set that scales by one and shifts nothing
SMALLEST, LARGEST = 1e-30, 1e30  # of a scale: what is divided by it and multiplied again stays finite


@dataclass(frozen=True, slots=True)
class LayerScales:
    """One layer's part, as `ScaleSet.layer` gives it. `key` and `value` are [kv_heads], `key_mean` [kv_heads,
    head_size]; all float32, contiguous, and sound, because the set was."""

    key: Tensor
    value: Tensor
    key_mean: Tensor | None = None


@dataclass(frozen=True, slots=True)
class ScaleSet:
    """`keys` and `values` are [layers, kv_heads], `key_means` [layers, kv_heads, head_size]; all float32."""

    keys: Tensor
    values: Tensor
    key_means: Tensor | None = None

    def __post_init__(self) -> None:
        for field in fields(self):  # kernels count on it
            tensor: Tensor | None = getattr(self, field.name)
            object.__setattr__(self, field.name, None if tensor is None else tensor.contiguous())
        for name in ("keys", "values"):
            _scales_checked(name, getattr(self, name))
        if self.values.shape != self.keys.shape:
            raise InvalidArgument("values", tuple(self.values.shape), f"of the shape of keys, {tuple(self.keys.shape)}")
        means = self.key_means
        if means is None:
            return
        if means.dtype != torch.float32 or means.ndim != 3 or means.shape[:2] != self.keys.shape:
            raise InvalidArgument(
                "key_means", f"{means.dtype} {tuple(means.shape)}", "float32 [layers, kv_heads, head_size]"
            )
        if not bool((means.abs() <= LARGEST).all()):
            raise InvalidArgument("key_means", "NaN or too large", f"of no number beyond {LARGEST:g}")

    def layer(self, index: int) -> LayerScales:
        """Views, not copies."""
        means = None if self.key_means is None else self.key_means[index]
        return LayerScales(self.keys[index], self.values[index], means)

    def to(self, device: torch.device | str) -> "ScaleSet":
        """The same set on another device."""
        means = None if self.key_means is None else self.key_means.to(device)
        return ScaleSet(self.keys.to(device), self.values.to(device), means)

    @property
    def digest(self) -> str:
        """Of every bit of it; "" where nothing is scaled and nothing shifted."""
        means = self.key_means
        if bool((self.keys == 1).all() and (self.values == 1).all()) and (
            means is None or not bool(means.view(torch.int32).any())  # -0 shifts nothing but a sign, and that is a bit
        ):
            return NEUTRAL
        state = sha256(b"luminet/scale-set/1")
        for field in fields(self):
            tensor: Tensor | None = getattr(self, field.name)
            state.update(b"-" if tensor is None else repr(tuple(tensor.shape)).encode())
            if tensor is not None:
                state.update(bytes(tensor.cpu().flatten().view(torch.uint8).tolist()))
        return state.hexdigest()


def neutral_scales(layout: PageLayout, device: torch.device | str = "cpu") -> ScaleSet:
    """Scales of one and no means: what a model without calibration has."""
    ones = torch.ones(layout.layers, layout.kv_heads, device=device)
    return ScaleSet(ones, ones)


def _scales_checked(name: str, scales: Tensor) -> None:
    if scales.dtype != torch.float32 or scales.ndim != 2:
        raise InvalidArgument(name, f"{scales.dtype} {tuple(scales.shape)}", "float32 [layers, kv_heads]")
    if not bool(((scales >= SMALLEST) & (scales <= LARGEST)).all()):
        raise InvalidArgument(name, "NaN, or a number too small or too large", f"between {SMALLEST:g} and {LARGEST:g}")
