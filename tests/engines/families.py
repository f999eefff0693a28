"""Small models with random weights, one or more of each family, saved by `transformers` as anybody would save theirs.

Random, but sharp: with ordinary initial weights all tokens are about as likely as each other, and no test of equal
tokens would mean much.
"""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB = 96  # one token for the beginning, and one for each letter of ASCII
PAD = VOCAB - 1
SHARPNESS = 3.0
_BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": PAD,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama-biases-mha": {
        "model_type": "llama",
        "num_key_value_heads": 4,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "llama-scaled": {"model_type": "llama", "rope_parameters": _LLAMA3, "num_attention_heads": 8, "head_dim": 32},
    "llama-yarn-mqa": {"model_type": "llama", "rope_parameters": _YARN, "num_key_value_heads": 1},
    "mistral-window": {"model_type": "mistral", "sliding_window": 24, "num_hidden_layers": 3},
    "mistral": {"model_type": "mistral", "sliding_window": None, "head_dim": 32},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True, "use_sliding_window": False, "head_dim": None},
    "qwen2-window": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 40,
        "max_window_layers": 1,
        "num_hidden_layers": 3,
        "head_dim": None,
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 4},
    "qwen3-window": {
        "model_type": "qwen3",
        "use_sliding_window": True,
        "sliding_window": 33,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "max_window_layers": 0,
        "num_hidden_layers": 3,
    },
}
ONE_OF_EACH_FAMILY = ("llama", "mistral-window", "qwen2", "qwen3-window")


@torch.no_grad()
def make_model(folder: Path, name: str, *, dtype: torch.dtype = torch.float32) -> Path:
    """A folder in Hugging Face's layout, in several shards."""
    from transformers import AutoConfig, AutoModelForCausalLM  # here, as it takes seconds

    fields = {field: value for field, value in (_BASE | CONFIGURATIONS[name]).items() if value is not None}
    if "head_dim" in CONFIGURATIONS[name] and CONFIGURATIONS[name]["head_dim"] is None:
        fields.pop("head_dim", None)
    if "sliding_window" in CONFIGURATIONS[name]:
        fields["sliding_window"] = CONFIGURATIONS[name]["sliding_window"]
    making: Any = AutoModelForCausalLM
    model = making.from_config(AutoConfig.for_model(**fields))
    chance = torch.Generator().manual_seed(sum(name.encode()))
    for label, weight in model.named_parameters():
        random = torch.randn(weight.shape, generator=chance)
        if weight.ndim == 2:
            weight.copy_(random * (SHARPNESS / weight.shape[-1] ** 0.5))
        else:
            weight.copy_(random * 0.3 if label.endswith("bias") else 1 + 0.1 * random)
    model.to(dtype).save_pretrained(folder, max_shard_size="60KB")
    _save_tokenizer(folder)
    assert json.loads((folder / "config.json").read_text())["model_type"] == fields["model_type"]
    return folder


def _save_tokenizer(folder: Path) -> None:
    letters = ["<s>", *(chr(code) for code in range(33, 127)), "Ġ"]  # the last is what the library calls a space
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
