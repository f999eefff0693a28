"""A model's tensors from a Hugging Face folder, and the model's revision, which does not depend on file names.

Reads `model.safetensors`, or the shards in `model.safetensors.index.json`. Every tensor the model needs must be
present, with its shape and finite numbers, and no unused tensor may be: a bias that is not applied would make it
another model.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine_agent.engine.config import CONFIG, ModelConfig, read_config
from engine_agent.engine.errors import BadModel

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
REVISION = b"luminet/model/1"

Shapes = dict[str, tuple[int, ...]]


def shapes_of(config: ModelConfig) -> Shapes:
    """Return the shape of every tensor of a model, by Hugging Face's names."""
    hidden = config.hidden_size
    shapes: Shapes = {EMBEDDING: (config.vocab_size, hidden), NORM: (hidden,)}
    for number in range(config.layers):
        shapes |= {f"model.layers.{number}.{name}": shape for name, shape in _layer_shapes(config).items()}
    return shapes if config.is_tied else shapes | {HEAD: (config.vocab_size, hidden)}


def _layer_shapes(config: ModelConfig) -> Shapes:
    hidden, inner, head = config.hidden_size, config.intermediate_size, config.head_size
    queries, keys = config.heads * head, config.kv_heads * head
    shapes: Shapes = {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
    if config.has_qk_norm:
        shapes |= {"self_attn.q_norm.weight": (head,), "self_attn.k_norm.weight": (head,)}
    for name, rows, columns, has_bias in (
        ("self_attn.q_proj", queries, hidden, config.has_qkv_bias),
        ("self_attn.k_proj", keys, hidden, config.has_qkv_bias),
        ("self_attn.v_proj", keys, hidden, config.has_qkv_bias),
        ("self_attn.o_proj", hidden, queries, config.has_output_bias),
        ("mlp.gate_proj", inner, hidden, config.has_mlp_bias),
        ("mlp.up_proj", inner, hidden, config.has_mlp_bias),
        ("mlp.down_proj", hidden, inner, config.has_mlp_bias),
    ):
        shapes[f"{name}.weight"] = (rows, columns)
        if has_bias:
            shapes[f"{name}.bias"] = (rows,)
    return shapes


def model_revision(folder: Path) -> str:
    """Return the sha256 of everything the model computes with: its parsed configuration, and every tensor's bits.

    It does not depend on how weights are divided into files, or on other files in the folder. Raises BadModel, OSError.
    """
    config = read_config(folder)
    identity = Identity(config)
    for name, tensor in tensors(folder, config):
        identity.add(name, tensor)
    return identity.revision


class Identity:
    """Computes a model's revision from its tensors, in the order of `tensors`."""

    def __init__(self, config: ModelConfig) -> None:
        self._state = sha256(REVISION)
        self._part(json.dumps(asdict(config, dict_factory=_said), sort_keys=True).encode())

    def add(self, name: str, tensor: Tensor) -> None:
        self._part(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        self._part(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)

    @property
    def revision(self) -> str:
        return self._state.hexdigest()

    def _part(self, part: bytes | memoryview) -> None:
        self._state.update(len(part).to_bytes(8, "little"))  # so that no two lists of parts have the same bytes
        self._state.update(part)


def _said(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields without empty values, so that a new field does not change existing revisions."""
    return {
        name: value
        for name, value in fields
        if not (value is None or value is False or (isinstance(value, tuple) and not any(value)))
    }


def tensors(folder: Path, config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """Iterate over all tensors of the model as stored, in the order of their names, with their shapes checked.

    A tensor lies in its mapped file: a caller that keeps it must copy it, so that no file stays in memory. Raises
    BadModel, OSError.
    """
    shapes = shapes_of(config)
    files = _files(folder, config)
    if missing := sorted(shapes.keys() - files.keys()):
        raise BadModel(folder, missing[0], "is in none of its files" + _more(missing))
    if unexpected_tensors := sorted(files.keys() - shapes.keys()):
        raise BadModel(
            files[unexpected_tensors[0]],
            unexpected_tensors[0],
            f"is no tensor of {config.architecture}" + _more(unexpected_tensors),
        )
    for name in sorted(shapes):
        with _opened(files[name]) as file:
            tensor: Tensor = file.get_tensor(name)
        _checked(tensor, files[name], name, shapes[name])
        yield name, tensor


def stored_dtype(folder: Path, config: ModelConfig) -> str:
    """Return how the embedding is stored, in safetensors' terms: `BF16`, `F16` or `F32`. Raises BadModel, OSError."""
    path = _files(folder, config).get(EMBEDDING)
    if path is None:
        raise BadModel(folder, EMBEDDING, "is in none of its files")
    with _opened(path) as file:
        return str(file.get_slice(EMBEDDING).get_dtype())


def _checked(tensor: Tensor, path: Path, name: str, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise BadModel(path, name, f"expected shape {shape}, found {tuple(tensor.shape)}; see {CONFIG}")
    if tensor.dtype not in DTYPES:
        raise BadModel(path, name, f"{tensor.dtype} is not served")
    minimum, maximum = torch.aminmax(tensor)  # one pass without a copy; NaN if there is one
    if not (minimum.isfinite() and maximum.isfinite()):
        raise BadModel(path, name, "holds NaN or an infinity")


def _files(folder: Path, config: ModelConfig) -> dict[str, Path]:
    """Return which file contains which tensor, without tensors that no model computes with."""
    single = folder / SINGLE
    paths = [single] if single.exists() else _shards(folder)
    path_by_name: dict[str, Path] = {}
    for path in paths:
        with _opened(path) as file:
            for name in file.keys():  # noqa: SIM118 (no mapping: it has nothing else)
                if name in path_by_name:
                    raise BadModel(path, name, f"is in {path_by_name[name].name} as well")
                path_by_name[name] = path
    if config.is_tied:
        path_by_name.pop(HEAD, None)  # some writers repeat it; the embedding it is tied to is used
    return {name: path for name, path in path_by_name.items() if not name.endswith("rotary_emb.inv_freq")}


def _shards(folder: Path) -> list[Path]:
    path = folder / INDEX
    if not path.exists():
        raise BadModel(folder, "", f"has neither {SINGLE} nor {INDEX}")
    try:
        named = set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise BadModel(path, "weight_map", "is no JSON object of file names") from problem
    for name in sorted(named, key=str):
        if type(name) is not str or Path(name).name != name:
            raise BadModel(path, "weight_map", f"{name!r} is no file of this folder")
    return [folder / name for name in sorted(named)]


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError as problem:
        raise BadModel(path, "", f"is missing: {INDEX} lists it") from problem
    except SafetensorError as problem:
        raise BadModel(path, "", f"is no safetensors file: {problem}") from problem


def _more(names: list[str]) -> str:
    return f", nor {len(names) - 1} others" if len(names) > 1 else ""
