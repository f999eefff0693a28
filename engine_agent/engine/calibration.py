"""Statistics of a model's keys and values over a text: their range and the keys' means. Stored next to the model.

For each layer and head: the largest value, the mean of the keys per channel, and the largest key element after that
mean is subtracted. These depend on the model only, so one file serves every format; `scale_set` derives the scales of a
format. A *static scale* maps the largest element seen to the top of a format's range, with `HEADROOM` above it for
values that the text did not show. *Key means* apply to every format that is not raw.

A chain's root contains the digest of the scale set, not of the file, so equal scales are equal whatever their source.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from engine_agent.engine.config import ModelConfig
from engine_agent.engine.errors import BadModel
from kernels.formats import KvFormat, VectorFormat
from kernels.scales import LARGEST, ScaleSet

FILE = "kv_scales.safetensors"
SCHEMA = "luminet/kv-scales/1"
DETAILS = "luminet"  # the only key of the metadata: safetensors does not keep the order of several
TENSORS = ("key_amax", "key_mean", "value_amax")
HEADROOM = 2.0  # measured: see docs/quality.md
SMALLEST = 1e-6


@dataclass(frozen=True, slots=True)
class Calibration:
    """The statistics and their source. Means are of keys with their positions; `key_amax` is after subtraction."""

    key_amax: Tensor  # float32 [layers, kv_heads]
    key_mean: Tensor  # float32 [layers, kv_heads, head_size]
    value_amax: Tensor  # float32 [layers, kv_heads]
    model_revision: str
    text_sha256: str
    tokens: int


def scale_set(calibration: Calibration, kv_format: KvFormat) -> ScaleSet:
    """Return the scales for this format: key means unless its keys are raw, and static scales if it uses them."""
    means = None if kv_format.key.is_raw else calibration.key_mean
    return ScaleSet(
        _static(calibration.key_amax, kv_format.key), _static(calibration.value_amax, kv_format.value), means
    )


def _static(amax: Tensor, vector: VectorFormat) -> Tensor:
    if not vector.has_static_scale:
        return torch.ones_like(amax)
    return (amax * (HEADROOM / vector.static_top)).clamp_min(SMALLEST)


def save_calibration(calibration: Calibration, folder: Path) -> Path:
    """Write the file next to the model; equal text and model give equal bytes. Raises OSError."""
    details = {
        "schema": SCHEMA,
        "model_revision": calibration.model_revision,
        "text_sha256": calibration.text_sha256,
        "tokens": calibration.tokens,
    }
    tensors = {name: getattr(calibration, name).contiguous() for name in TENSORS}
    path = folder / FILE
    path.write_bytes(save(tensors, {DETAILS: json.dumps(details, sort_keys=True)}))
    return path


def load_calibration(folder: Path, config: ModelConfig, *, model_revision: str) -> Calibration | None:
    """Return the calibration next to the model, or None. Raises BadModel if it is another model's or invalid."""
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
    expected_types = {"schema": str, "model_revision": str, "text_sha256": str, "tokens": int}
    for name, kind in expected_types.items():
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
