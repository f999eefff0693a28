"""A model's tensors from a Hugging Face folder, and the model's revision: who it is, whatever its files are called.

`model.safetensors`, or the shards that `model.safetensors.index.json` lists. Every tensor the model needs must be there
in its shape, and none that it would not use: a bias that nobody adds is another model.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine_agent.engine.config import CONFIG, ModelConfig, read_config
from engine_agent.engine.errors import BadModel

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HEAD = "lm_head.weight"
REVISION = b"luminet/model/1"

Shapes = dict[str, tuple[int, ...]]


def llama_shapes(config: ModelConfig) -> Shapes:
    """Every tensor of a Llama, by Hugging Face's names."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    shapes: Shapes = {"model.embed_tokens.weight": (config.vocab_size, hidden), "model.norm.weight": (hidden,)}
    for number in range(config.layers):
        shapes |= {
            f"model.layers.{number}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (hidden,),
                "self_attn.q_proj": (queries, hidden),
                "self_attn.k_proj": (keys, hidden),
                "self_attn.v_proj": (keys, hidden),
                "self_attn.o_proj": (hidden, queries),
                "post_attention_layernorm": (hidden,),
                "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner),
            }.items()
        }
    return shapes if config.is_tied else shapes | {HEAD: (config.vocab_size, hidden)}


SHAPES: dict[str, Callable[[ModelConfig], Shapes]] = {"LlamaForCausalLM": llama_shapes}


def read_weights(folder: Path, config: ModelConfig, *, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Every tensor in this dtype, on the CPU. Raises BadModel, OSError."""
    return {name: tensor.to(dtype) for name, tensor in _tensors(folder, config)}


def model_revision(folder: Path) -> str:
    """sha256 of what the model computes with: its configuration as the engine reads it, and every tensor's bits.

    How weights are cut into files, and whatever else lies in the folder, is no part of it. Raises BadModel, OSError.
    """
    config = read_config(folder)
    state = sha256(REVISION)
    _add(state.update, json.dumps(asdict(config), sort_keys=True).encode())
    for name, tensor in _tensors(folder, config):
        _add(state.update, f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        _add(state.update, tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()


def _add(update: Callable[[bytes | memoryview], None], part: bytes | memoryview) -> None:
    update(len(part).to_bytes(8, "little"))  # no two lists of parts are the same bytes
    update(part)


def _tensors(folder: Path, config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """All tensors of the model as they are stored, in the order of their names, each with the shape it must have."""
    shapes = SHAPES[config.architecture](config)
    files = _files(folder, config)
    if missing := sorted(shapes.keys() - files.keys()):
        raise BadModel(folder, missing[0], "is in none of its files" + _more(missing))
    if strange := sorted(files.keys() - shapes.keys()):
        raise BadModel(files[strange[0]], strange[0], f"is no tensor of {config.architecture}" + _more(strange))
    for name in sorted(shapes):
        path = files[name]
        with _opened(path) as file:
            tensor: Tensor = file.get_tensor(name)
        if tuple(tensor.shape) != shapes[name]:
            raise BadModel(path, name, f"expected shape {shapes[name]}, found {tuple(tensor.shape)}; see {CONFIG}")
        if tensor.dtype not in DTYPES:
            raise BadModel(path, name, f"{tensor.dtype} is not served")
        yield name, tensor


def _files(folder: Path, config: ModelConfig) -> dict[str, Path]:
    """Which file holds which tensor; without what no model computes with."""
    single = folder / SINGLE
    paths = [single] if single.exists() else _shards(folder)
    found: dict[str, Path] = {}
    for path in paths:
        with _opened(path) as file:
            for name in file.keys():  # noqa: SIM118 (no mapping: it has nothing else)
                if name in found:
                    raise BadModel(path, name, f"is in {found[name].name} as well")
                found[name] = path
    if config.is_tied:
        found.pop(HEAD, None)  # what some writers repeat: the embedding it is tied to counts
    return {name: path for name, path in found.items() if not name.endswith("rotary_emb.inv_freq")}


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
    except SafetensorError as problem:
        raise BadModel(path, "", f"is no safetensors file: {problem}") from problem


def _more(names: list[str]) -> str:
    return f", nor {len(names) - 1} others" if len(names) > 1 else ""
