"""Fields that a config leaves out: what the model type's own class takes is used and said, or the field is refused."""

import dataclasses
from typing import Any

import pytest

from kernels.errors import InvalidArgument
from kernels.models.configs import read_config
from kernels.models.defaults import DEFAULTS, KNOWN
from kernels.models.kinds import STATES_ONLY
from kernels.shapes import Layers, ModelShape

DECISIVE = {
    *(
        "attention_chunk_size",
        "attn_layer_offset",
        "attn_layer_period",
        "head_dim",
        "kv_lora_rank",
        "max_window_layers",
    ),
    *("multi_query", "new_decoder_architecture", "num_key_value_heads", "num_kv_shared_layers", "qk_rope_head_dim"),
    *("sliding_window", "use_sliding_window"),
}
ONE_VECTOR = {"num_key_value_heads", "head_dim"}  # say nothing of a latent cache


def bare(model_type: str, **fields: Any) -> ModelShape:
    sizes = {"num_hidden_layers": 12, "num_attention_heads": 32, "hidden_size": 4096}
    return read_config({"model_type": model_type, **sizes, **fields})


def class_defaults(model_type: str) -> dict[str, int]:
    """Numbers and flags that transformers' own class has for fields left out."""
    from transformers import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        return {}
    fields = dataclasses.fields(CONFIG_MAPPING[model_type])
    return {one.name: one.default for one in fields if isinstance(one.default, int)}


def test_the_defaults_are_those_of_the_model_types_own_class(subtests: pytest.Subtests) -> None:
    assert KNOWN
    for model_type in sorted(KNOWN):
        with subtests.test(msg=model_type):
            assert_defaults_of_class(model_type)


def assert_defaults_of_class(model_type: str) -> None:
    rows, found = dict(DEFAULTS.get(model_type, {})), class_defaults(model_type)
    assert {name: found[name] for name in rows if name in found} == {name: rows[name] for name in rows if name in found}
    ignored = ONE_VECTOR if "kv_lora_rank" in found else DECISIVE if model_type in STATES_ONLY else set()
    assert {name for name in DECISIVE - ignored if name in found} - set(rows) == set()


def test_every_row_is_of_a_known_type() -> None:
    assert set(DEFAULTS) <= KNOWN


USED: dict[str, tuple[ModelShape, tuple[Layers, ...], str]] = {
    "a mistral's window": (
        bare("mistral"),
        (Layers("window", 12, 32, 8, 128, 128, window_tokens=4096),),
        "sliding_window is not in the config: 4096",
    ),
    "a starcoder2's KV heads": (
        bare("starcoder2"),
        (Layers("full", 12, 32, 2, 128, 128),),
        "num_key_value_heads is not in the config: 2",
    ),
    "a gpt_oss's sizes": (
        bare("gpt_oss"),
        (Layers("window", 6, 32, 8, 64, 64, window_tokens=128), Layers("full", 6, 32, 8, 64, 64)),
        "head_dim is not in the config: 64",
    ),
    "a window of a mistral inside another": (
        read_config(
            {
                "model_type": "mistral3",
                "text_config": {"num_hidden_layers": 12, "num_attention_heads": 32, "head_dim": 64},
            }
        ),
        (Layers("window", 12, 32, 8, 64, 64, window_tokens=4096),),
        "sliding_window is not in the config: 4096",
    ),
    "every fourth layer of an olmo3": (
        bare("olmo3", num_key_value_heads=8),
        (Layers("window", 9, 32, 8, 128, 128, window_tokens=4096), Layers("full", 3, 32, 8, 128, 128)),
        "sliding_window_pattern is not in the config: 4",
    ),
    "which layers of a jamba attend": (
        bare("jamba"),
        (Layers("state", 11), Layers("full", 1, 32, 8, 128, 128)),
        "attn_layer_period is not in the config: 8",
    ),
    "a DeepSeek's latent vector": (
        bare("deepseek_v3"),
        (Layers("latent", 12, 32, 1, 576, 0),),
        "kv_lora_rank is not in the config: 512",
    ),
    "the last layers of a Gemma 3n": (
        bare("gemma3n_text", num_hidden_layers=20),
        (
            Layers("window", 4, 32, 2, 256, 256, window_tokens=512),
            Layers("full", 1, 32, 2, 256, 256),
            Layers("shared", 15),
        ),
        "num_kv_shared_layers is not in the config: 15",
    ),
    "one KV head of a gpt_bigcode": (
        bare("gpt_bigcode"),
        (Layers("full", 12, 32, 1, 128, 128),),
        "multi_query is not in the config: true",
    ),
    "that Qwen does not use its window": (
        bare("qwen2", sliding_window=4096, num_key_value_heads=4),
        (Layers("full", 12, 32, 4, 128, 128),),
        "use_sliding_window is not in the config: false",
    ),
    "since when it does, and how large": (
        bare("qwen2", use_sliding_window=True, num_key_value_heads=4, num_hidden_layers=30),
        (Layers("full", 28, 32, 4, 128, 128), Layers("window", 2, 32, 4, 128, 128, window_tokens=4096)),
        "max_window_layers is not in the config: 28",
    ),
}


@pytest.mark.parametrize("case", USED.values(), ids=USED)
def test_what_is_left_out_is_what_the_class_takes_and_said(case: tuple[ModelShape, tuple[Layers, ...], str]) -> None:
    found, layers, note = case
    assert found.layers == layers
    assert any(one.startswith(note) for one in found.notes)


@pytest.mark.parametrize("model_type", ["mistral", "gemma2", "gemma3_text", "gpt_oss", "cohere2", "olmo3", "exaone4"])
def test_a_window_that_is_null_is_none(model_type: str) -> None:
    found = bare(model_type, sliding_window=None, num_key_value_heads=8, head_dim=128)
    assert found.layers == (Layers("full", 12, 32, 8, 128, 128),)


@pytest.mark.parametrize(
    ("model_type", "field"),
    [
        ("bamba", "config.attn_layer_indices"),
        ("granitemoehybrid", "config.layer_types"),
        ("lfm2", "config.layer_types"),
        ("nemotron_h", "config.layer_types"),
    ],
)
def test_which_layers_attend_is_not_guessed(model_type: str, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        bare(model_type)
    assert caught.value.argument == field


def test_lfm2_names_the_layers_that_attend() -> None:
    found = bare("lfm2", full_attn_idxs=[2, 5], conv_L_cache=3, num_key_value_heads=8)
    assert [(one.kind, one.count) for one in found.layers] == [("state", 10), ("full", 2)]
