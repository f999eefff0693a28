"""What a text says about a model's keys and values: how large they get, and where keys sit. Saved beside the model.

For each layer and head: the largest value, the mean of the keys channel by channel, and the largest key element once
that mean is taken off. These are facts of the model, so one file serves every format; `scale_set` makes of them what a
format uses. A *static scale* moves the largest element seen to the top of a format's range, with `HEADROOM` above it
for what the text did not show. *Key means* are for every format that is not raw.

The scale set's digest, not the file's, is what a chain's root holds: equal scales are equal whoever found them.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from engine_agent.engine.config import ModelConfig
from engine_agent.engine.errors import BadModel
from engine_agent.engine.model import Model
from engine_agent.tools.quality.injection import NOTHING, Injection
from engine_agent.tools.quality.reading import Reader
from kernels.layout import KV_FORMATS, KvFormat, PageLayout, VectorFormat
from kernels.scales import LARGEST, ScaleSet, neutral_scales

FILE = "kv_scales.safetensors"
SCHEMA = "luminet/kv-scales/1"
DETAILS = "luminet"  # the one key of the metadata: safetensors keeps no order among several
TENSORS = ("key_amax", "key_mean", "value_amax")
HEADROOM = 2.0  # measured: see docs/quality.md
SMALLEST = 1e-6
SEQUENCES = 4  # read side by side


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found, and from what. Means are of keys with their positions; `key_amax` is of what is left of them."""

    key_amax: Tensor  # float32 [layers, kv_heads]
    key_mean: Tensor  # float32 [layers, kv_heads, head_size]
    value_amax: Tensor  # float32 [layers, kv_heads]
    model_revision: str
    text_sha256: str
    tokens: int


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
    """Watches keys and values on their way into the pages."""

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
        means = [(seen.total / self.tokens).float() for seen in self.layers]
        reaches = [
            torch.maximum(seen.high - mean, mean - seen.low) for seen, mean in zip(self.layers, means, strict=True)
        ]
        return Calibration(
            key_amax=torch.stack([reach.amax(-1) for reach in reaches]).clamp_min(SMALLEST).cpu(),
            key_mean=torch.stack(means).cpu(),
            value_amax=torch.stack([seen.value_amax for seen in self.layers]).clamp_min(SMALLEST).cpu(),
            model_revision=model_revision,
            text_sha256=text_sha256,
            tokens=self.tokens,
        )


def calibrate(
    model: Model, sequences: Tensor, *, model_revision: str, text_sha256: str, injection: Injection = NOTHING
) -> Calibration:
    """Read these sequences, [sequences, tokens], in float32 pages and watch."""
    config, device = model.config, model.embedding.device
    watching = Observer(config, device)
    layout = PageLayout(KV_FORMATS["fp32"], config.layers, config.kv_heads, config.head_size)
    reader = Reader(model, layout, neutral_scales(layout, device), injection, watching)
    for batch in sequences.split(SEQUENCES):
        reader.hidden(batch.to(device), decoded_tokens=0)
    return watching.found(model_revision=model_revision, text_sha256=text_sha256)


def scale_set(found: Calibration, kv_format: KvFormat) -> ScaleSet:
    """What this format uses of it: key means unless its keys are raw, static scales where it has them."""
    means = None if kv_format.key.is_raw else found.key_mean
    return ScaleSet(_static(found.key_amax, kv_format.key), _static(found.value_amax, kv_format.value), means)


def _static(amax: Tensor, vector: VectorFormat) -> Tensor:
    if not vector.has_static_scale:
        return torch.ones_like(amax)
    return (amax * (HEADROOM / vector.static_top)).clamp_min(SMALLEST)


def save_calibration(found: Calibration, folder: Path) -> Path:
    """Beside the model; the same text and model give the same bytes. Raises OSError."""
    details = {
        "schema": SCHEMA,
        "model_revision": found.model_revision,
        "text_sha256": found.text_sha256,
        "tokens": found.tokens,
    }
    tensors = {name: getattr(found, name).contiguous() for name in TENSORS}
    path = folder / FILE
    path.write_bytes(save(tensors, {DETAILS: json.dumps(details, sort_keys=True)}))
    return path


def load_calibration(folder: Path, config: ModelConfig, *, model_revision: str) -> Calibration | None:
    """What lies beside the model, if anything does. Raises BadModel for another model's, or what cannot be scales."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            details = _details(path, (file.metadata() or {}).get(DETAILS))
            tensors = {name: file.get_tensor(name) for name in _names_checked(path, file.keys())}
    except SafetensorError as problem:
        raise BadModel(path, "", f"is no safetensors file: {problem}") from problem
    if details["model_revision"] != model_revision:
        raise BadModel(
            path,
            "model_revision",
            f"expected {model_revision}, found {details['model_revision']}: calibrate this model",
        )
    heads = (config.layers, config.kv_heads)
    shapes = {"key_amax": heads, "key_mean": (*heads, config.head_size), "value_amax": heads}
    for name, tensor in tensors.items():
        _tensor_checked(path, name, tensor, shapes[name])
    del details["schema"]
    return Calibration(**tensors, **details)


def _details(path: Path, text: str | None) -> dict[str, Any]:
    try:
        details = json.loads(text or "")
    except ValueError as problem:
        raise BadModel(path, DETAILS, "the metadata says nothing of whose scales these are") from problem
    wanted = {"schema": str, "model_revision": str, "text_sha256": str, "tokens": int}
    for name, kind in wanted.items():
        if not isinstance(details, dict) or type(details.get(name)) is not kind:
            raise BadModel(path, f"{DETAILS}.{name}", "is missing in the metadata")
    if details["schema"] != SCHEMA:
        raise BadModel(path, f"{DETAILS}.schema", f"expected {SCHEMA}, found {details['schema']}")
    return dict(details)


def _names_checked(path: Path, names: list[str]) -> Iterator[str]:
    if sorted(names) != sorted(TENSORS):
        raise BadModel(path, "tensors", f"expected {', '.join(TENSORS)}, found {', '.join(sorted(names))}")
    yield from TENSORS


def _tensor_checked(path: Path, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.dtype != torch.float32 or tuple(tensor.shape) != shape:
        raise BadModel(path, name, f"expected float32 {shape}, found {tensor.dtype} {tuple(tensor.shape)}")
    if not bool((tensor.abs() <= LARGEST).all()):
        raise BadModel(path, name, f"holds a NaN, or a number beyond {LARGEST:g}")
    if name != "key_mean" and not bool((tensor > 0).all()):
        raise BadModel(path, name, f"holds {tensor.min().item():g}, and a scale is above 0")
