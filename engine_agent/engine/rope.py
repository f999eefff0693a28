"""Rotary positions: frequencies with their scalings, and the tables that ops read.

`dynamic` scaling changes the angles once a sequence is longer than the model's positions. A page is shared by sequences
that will grow to different lengths, so its bytes may not depend on any sequence's length. We serve such a model up to
its positions, where `dynamic` equals `default`.
"""

import math

import torch
from torch import Tensor

from engine_agent.engine.config import ModelConfig
from engine_agent.engine.rope_config import RopeConfig, Yarn


def frequencies(rope: RopeConfig, head_size: int) -> Tensor:
    """Return the radians per position for each pair of channels, float32 [head_size / 2]."""
    exponents = torch.arange(0, head_size, 2, dtype=torch.int64).float() / head_size
    plain = 1.0 / rope.theta**exponents
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.yarn:
        return _yarn(plain, rope, rope.yarn)
    return _llama3(plain, rope) if rope.kind == "llama3" else plain


def rope_tables(config: ModelConfig, positions: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, float32 [positions, head_size / 2], including YaRN's factor for magnitudes."""
    indices = torch.arange(positions, dtype=torch.float32)
    angles = torch.outer(indices, frequencies(config.rope, config.head_size))
    magnitude = config.rope.yarn.attention_factor if config.rope.yarn else 1.0
    return angles.cos() * magnitude, angles.sin() * magnitude


def _llama3(plain: Tensor, rope: RopeConfig) -> Tensor:
    """Divide the frequencies of slow channels by `factor`, keep those of fast ones, and ramp between."""
    wavelengths = 2 * math.pi / plain
    turns = rope.original_positions / wavelengths  # over the context of the model's first training
    ramp = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    between = (1 - ramp) * plain / rope.factor + ramp * plain
    slowed = torch.where(turns < rope.low_freq_factor, plain / rope.factor, between)
    return torch.where(turns > rope.high_freq_factor, plain, slowed)


def _yarn(plain: Tensor, rope: RopeConfig, yarn: Yarn) -> Tensor:
    """Divide the frequencies of slow channels by `factor`, keep those of fast ones, and ramp between.

    Over the first context, slow channels turn less than `beta_slow` times, fast ones more than `beta_fast` times.
    """
    channels = 2 * len(plain)

    def channel(turns: float) -> float:
        """Return the channel that turns this many times."""
        wavelength = rope.original_positions / (turns * 2 * math.pi)
        return channels * math.log(wavelength) / (2 * math.log(rope.theta))

    low, high = channel(yarn.beta_fast), channel(yarn.beta_slow)
    if yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, channels - 1)
    width = high - low if high != low else 0.001
    slowed = ((torch.arange(len(plain), dtype=torch.float32) - low) / width).clamp(0, 1)
    return plain / rope.factor * slowed + plain * (1 - slowed)
