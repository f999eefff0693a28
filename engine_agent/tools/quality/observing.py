"""Find statistics of a model's keys and values by observing them on their way into pages while it reads a text."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine_agent.engine.calibration import SMALLEST, Calibration
from engine_agent.engine.config import ModelConfig
from engine_agent.engine.model import Model
from engine_agent.tools.quality.injection import NOTHING, Injection
from engine_agent.tools.quality.reading import Reader
from kernels.formats import EXACT, KV_FORMATS
from kernels.layout import PageLayout
from kernels.scales import neutral_scales

SEQUENCES = 4  # read in one batch


@dataclass(slots=True)
class _Seen:
    """Extremes and sums of one layer."""

    low: Tensor
    high: Tensor
    total: Tensor
    value_amax: Tensor

    def add(self, keys: Tensor, values: Tensor) -> None:
        self.low = torch.minimum(self.low, keys.amin(0))
        self.high = torch.maximum(self.high, keys.amax(0))
        self.total += keys.double().sum(0)
        self.value_amax = torch.maximum(self.value_amax, values.abs().amax((0, 2)))


@dataclass(slots=True)
class Observer:
    """Observes keys and values on their way into the pages."""

    config: ModelConfig
    device: torch.device
    tokens: int = 0
    layers: list[_Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = (self.config.kv_heads, self.config.head_size)
        infinite = torch.full(shape, math.inf, device=self.device)
        nothing = torch.zeros(shape, dtype=torch.float64, device=self.device)
        none = torch.zeros(shape[0], device=self.device)
        self.layers = [_Seen(infinite, -infinite, nothing.clone(), none) for _ in range(self.config.layers)]

    def __call__(self, layer: int, keys: Tensor, values: Tensor) -> None:
        self.layers[layer].add(keys.float(), values.float())
        self.tokens += len(keys) if layer == 0 else 0

    def found(self, *, model_revision: str, text_sha256: str) -> Calibration:
        means = [(layer.total / self.tokens).float() for layer in self.layers]
        amplitudes = [
            torch.maximum(layer.high - mean, mean - layer.low) for layer, mean in zip(self.layers, means, strict=True)
        ]
        return Calibration(
            key_amax=torch.stack([amplitude.amax(-1) for amplitude in amplitudes]).clamp_min(SMALLEST).cpu(),
            key_mean=torch.stack(means).cpu(),
            value_amax=torch.stack([layer.value_amax for layer in self.layers]).clamp_min(SMALLEST).cpu(),
            model_revision=model_revision,
            text_sha256=text_sha256,
            tokens=self.tokens,
        )


def calibrate(
    model: Model, sequences: Tensor, *, model_revision: str, text_sha256: str, injection: Injection = NOTHING
) -> Calibration:
    """Read these sequences, [sequences, tokens], in float32 pages, and return their statistics."""
    config, device = model.config, model.embedding.device
    watching = Observer(config, device)
    layout = PageLayout(KV_FORMATS[EXACT], config.layers, config.kv_heads, config.head_size)
    reader = Reader(model, layout, neutral_scales(layout, device), injection, watching)
    for batch in sequences.split(SEQUENCES):
        reader.hidden(batch.to(device), decoded_tokens=0)
    return watching.found(model_revision=model_revision, text_sha256=text_sha256)
