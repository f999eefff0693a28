"""Tiny models in Hugging Face's layout, made anew in each test."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from engine_agent.engine.config import ModelConfig, read_config
from engine_agent.engine.weights import INDEX, SINGLE, shapes_of

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "eos_token_id": 0,
}


MISTRAL: dict[str, Any] = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
QWEN2: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "head_dim": ...,
    "num_attention_heads": 2,
}
QWEN3: dict[str, Any] = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}


def make_config(folder: Path, **changed: Any) -> ModelConfig:
    """Writes config.json. A field that is changed to ... is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = {name: value for name, value in (CONFIG | changed).items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    return read_config(folder)


def make_weights(config: ModelConfig, *, seed: int = 1) -> dict[str, Tensor]:
    """Random, and sharp enough that attention prefers some tokens to others."""
    chance = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=chance) * (2.0 / shape[-1] ** 0.5)
        if len(shape) == 2
        else name.endswith("norm.weight") + 0.1 * torch.randn(shape, generator=chance)
        for name, shape in shapes_of(config).items()
    }


def make_folder(folder: Path, *, seed: int = 1, shards: int = 1, **changed: Any) -> Path:
    config = make_config(folder, **changed)
    save_weights(folder, make_weights(config, seed=seed), shards=shards)
    make_tokenizer(folder)
    return folder


def save_weights(folder: Path, weights: dict[str, Tensor], *, shards: int = 1, stem: str = "part") -> None:
    if shards == 1:
        save_file(weights, folder / SINGLE)
        return
    places = {name: f"{stem}-{number % shards}.safetensors" for number, name in enumerate(weights)}
    for file in set(places.values()):
        save_file({name: weights[name] for name, place in places.items() if place == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")


def make_tokenizer(folder: Path) -> None:
    """One token for the beginning, and one for each letter of ASCII: any tokens are text and the text those tokens."""
    letters = ["<s>", *(chr(code) for code in range(33, 127)), "Ġ"]  # the last is what the library calls a space
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
