"""The model of rows E2, E3 and E5: 8 layers of 512, random, small enough for two servers on one CPU.

Written as any checkpoint is, so that both read the same files. What it says means nothing; how long it takes does.
"""

import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from engine_agent.tools.training.chats import TEMPLATE
from engine_agent.tools.training.tokenizer import train_tokenizer

VOCABULARY = 8192
CONTEXT_TOKENS = 16_384
LAYERS, HIDDEN, INTERMEDIATE = 8, 512, 1408
HEADS, KV_HEADS, HEAD_SIZE = 8, 2, 64
DTYPE = torch.bfloat16
SPREAD = 0.02
FIRST_ORDINARY = 3  # ids below are special tokens
TEXTS = 80  # modules of the standard library, for the tokenizer to learn from


def write_model(folder: Path, *, seed: int = 512) -> Path:
    """A checkpoint folder, the same each time. Takes a few seconds, most of them for the tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", config())
    _write_json(folder / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 2})
    _write_json(folder / "tokenizer_config.json", tokenizer_config())
    train_tokenizer(_texts(), VOCABULARY).save(str(folder / "tokenizer.json"))
    save_file(_weights(seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT_TOKENS,
        "rope_theta": 100_000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0},
        "rms_norm_eps": 1e-5,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
        "dtype": "bfloat16",
    }


def tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "model_max_length": CONTEXT_TOKENS,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }


def _weights(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.empty(rows, columns).normal_(0.0, SPREAD, generator=generator).to(DTYPE)

    weights = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN), "model.norm.weight": _ones()}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for name, rows, columns in (
            ("self_attn.q_proj", HEADS * HEAD_SIZE, HIDDEN),
            ("self_attn.k_proj", KV_HEADS * HEAD_SIZE, HIDDEN),
            ("self_attn.v_proj", KV_HEADS * HEAD_SIZE, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HEADS * HEAD_SIZE),
            ("mlp.gate_proj", INTERMEDIATE, HIDDEN),
            ("mlp.up_proj", INTERMEDIATE, HIDDEN),
            ("mlp.down_proj", HIDDEN, INTERMEDIATE),
        ):
            weights[f"{prefix}.{name}.weight"] = matrix(rows, columns)
        weights[f"{prefix}.input_layernorm.weight"] = _ones()
        weights[f"{prefix}.post_attention_layernorm.weight"] = _ones()
    return weights


def _ones() -> torch.Tensor:
    return torch.ones(HIDDEN, dtype=DTYPE)


def _texts() -> Iterator[str]:
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    for module in modules[:TEXTS]:
        yield module.read_text(encoding="utf-8", errors="replace")


def random_prompt(random_: random.Random, tokens: int, vocabulary: int = VOCABULARY) -> list[int]:
    """Ids of ordinary tokens, other ones than every other prompt's from the first on."""
    return random_.choices(range(FIRST_ORDINARY, vocabulary), k=tokens)


def _write_json(path: Path, found: dict[str, Any]) -> None:
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
