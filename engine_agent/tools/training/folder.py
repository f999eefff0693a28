"""Write and read the model folder in Hugging Face's layout."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from engine_agent.tools.training.chats import END, END_OF_TEXT, TEMPLATE
from engine_agent.tools.training.network import Llama, Shape
from engine_agent.tools.training.tokenizer import SPECIAL

PATH = Path(__file__).parents[2] / "demo" / "model"
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"


def rounded(model: Llama) -> Llama:
    """Return the model with weights rounded to bfloat16, in float32, equal to those read from the folder."""
    duplicate = Llama(model.shape)
    duplicate.load_state_dict({name: weight.bfloat16().float() for name, weight in model.state_dict().items()})
    return duplicate


def config_of(shape: Shape, tokenizer: Tokenizer) -> dict[str, object]:
    """Return `config.json`. Theta and dtype appear twice, under the names before and since transformers 5."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.positions,
        "rope_theta": shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "rms_norm_eps": shape.norm_epsilon,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": tokenizer.token_to_id(END_OF_TEXT),
        "eos_token_id": tokenizer.token_to_id(END),
        "pad_token_id": tokenizer.token_to_id(END_OF_TEXT),
        "torch_dtype": "bfloat16",
        "dtype": "bfloat16",
    }


def generation_config_of(tokenizer: Tokenizer) -> dict[str, object]:
    """Return generation settings: a chat ends with the turn, a plain text with the end of the text."""
    end, end_of_text = tokenizer.token_to_id(END), tokenizer.token_to_id(END_OF_TEXT)
    return {
        "bos_token_id": end_of_text,
        "eos_token_id": [end, end_of_text],
        "pad_token_id": end_of_text,
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.95,
    }


def tokenizer_config_of(shape: Shape, tokenizer: Tokenizer) -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": shape.positions,
        "bos_token": END_OF_TEXT,
        "eos_token": END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(token)): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for token in SPECIAL
        },
        "chat_template": TEMPLATE,
    }


def write_json(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_folder(folder: Path, model: Llama, tokenizer: Tokenizer) -> None:
    """Write all files that `transformers` reads, with weights as bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.bfloat16().contiguous() for name, weight in model.state_dict().items()}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    tokenizer.save(str(folder / TOKENIZER), pretty=False)
    write_json(folder / "config.json", config_of(model.shape, tokenizer))
    write_json(folder / "generation_config.json", generation_config_of(tokenizer))
    write_json(folder / "tokenizer_config.json", tokenizer_config_of(model.shape, tokenizer))
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")


def read_shape(folder: Path = PATH) -> Shape:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Shape(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        intermediate=config["intermediate_size"],
        positions=config["max_position_embeddings"],
        rope_theta=config["rope_theta"],
        norm_epsilon=config["rms_norm_eps"],
    )


def read_tokenizer(folder: Path = PATH) -> Tokenizer:
    return Tokenizer.from_file(str(folder / TOKENIZER))


def read_model(folder: Path = PATH) -> Llama:
    """Return the model in float32, whatever the dtype of the stored weights."""
    model = Llama(read_shape(folder))
    model.load_state_dict({name: weight.float() for name, weight in load_file(folder / WEIGHTS).items()})
    return model.eval().requires_grad_(False)


def parameters(model: Llama) -> int:
    return sum(weight.numel() for weight in model.parameters())


def same_weights(first: Llama, second: Llama) -> bool:
    weights = second.state_dict()
    return all(torch.equal(weight, weights[name]) for name, weight in first.state_dict().items())
