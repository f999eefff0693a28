"""Make keys harder to quantise without changing the model's results.

Small models have none of the outlier channels of large ones, so a rotation or a key mean would look useless on them.
Two changes that do not affect attention in exact arithmetic restore the difficulty. A constant added to every key after
its rotary position shifts all scores of a query by the same amount, which softmax removes. Keys multiplied by a power
of two, and queries divided by it, give the same scores. The stored keys are hard in both cases.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine_agent.engine.config import ModelConfig

CHANNELS = 4  # for each head
LEAST, MOST = 25.0, 60.0
SEED = 4


@dataclass(frozen=True, slots=True)
class Injection:
    """A change of keys between rotary positions and pages: `key * stretch + offsets`."""

    offsets: Tensor | None = None  # [layers, kv_heads, head_size]
    stretch: float = 1.0  # a power of two, so that nothing is rounded

    def keys(self, layer: int, keys: Tensor) -> Tensor:
        stretched = keys * self.stretch if self.stretch != 1 else keys
        return stretched if self.offsets is None else stretched + self.offsets[layer].to(keys.dtype)

    def queries(self, queries: Tensor) -> Tensor:
        return queries / self.stretch if self.stretch != 1 else queries


NOTHING = Injection()


def outliers(config: ModelConfig, *, device: torch.device | str = "cpu") -> Injection:
    """Return an injection that moves a few channels of each head far from zero, some above and some below."""
    chance = torch.Generator().manual_seed(SEED)
    heads = config.layers * config.kv_heads
    offsets = torch.zeros(heads, config.head_size)
    for head in offsets:
        channels = torch.randperm(config.head_size, generator=chance)[:CHANNELS]
        sizes = LEAST + (MOST - LEAST) * torch.rand(CHANNELS, generator=chance)
        signs = torch.randint(0, 2, (CHANNELS,), generator=chance) * 2 - 1
        head[channels] = sizes * signs
    return Injection(offsets.view(config.layers, config.kv_heads, config.head_size).to(device))


def loud(amax: float, limit: float) -> Injection:
    """Return an injection whose largest key element, now `amax`, lies between `limit` and twice that."""
    stretch = 1.0
    while amax * stretch < limit:
        stretch *= 2
    return Injection(stretch=stretch)
