"""What a config.json may say, and what is refused by name."""

from math import log
from pathlib import Path
from typing import Any

import pytest

from engine_agent.engine.config import read_config
from engine_agent.engine.errors import BadModel
from engine_agent.engine.rope_config import RopeConfig, Yarn
from tests.unit.engine.making import MISTRAL, QWEN2, QWEN3, make_config


def test_sizes_are_read(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    assert (config.layers, config.heads, config.kv_heads, config.head_size) == (2, 4, 2, 32)
    assert config.rope == RopeConfig()
    assert config.is_tied


def test_what_is_left_out_is_what_transformers_takes(tmp_path: Path) -> None:
    config = make_config(tmp_path, num_key_value_heads=..., head_dim=..., rope_theta=..., tie_word_embeddings=...)
    assert (config.kv_heads, config.head_size, config.rope.theta, config.is_tied) == (4, 16, 10_000.0, False)


def test_both_spellings_of_rope_say_the_same(tmp_path: Path) -> None:
    older = make_config(tmp_path, rope_theta=5e5, rope_scaling={"type": "linear", "factor": 2})
    newer = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}
    assert make_config(tmp_path, rope_theta=..., rope_parameters=newer).rope == older.rope
    assert older.rope == RopeConfig("linear", 5e5, 2.0)


def test_where_both_spellings_are_the_older_one_counts_as_in_transformers(tmp_path: Path) -> None:
    both = {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}}
    assert make_config(tmp_path, **both).rope.kind == "linear"


def test_yarn_that_says_nothing_else_is_what_its_authors_took(tmp_path: Path) -> None:
    rope = make_config(tmp_path, rope_scaling={"type": "yarn", "factor": 4.0}).rope
    assert rope.original_positions == 1024
    assert rope.yarn == Yarn(attention_factor=0.1 * log(4) + 1, beta_fast=32, beta_slow=1)


@pytest.mark.parametrize(
    ("changed", "kv_heads", "head_size"),
    [({}, 64, 16), (MISTRAL, 8, 16), (QWEN2 | {"num_attention_heads": 64}, 32, 16), (QWEN3, 32, 128)],
    ids=["llama", "mistral", "qwen2", "qwen3"],
)
def test_each_family_has_its_own_sizes_where_a_file_leaves_them_out(
    changed: dict[str, Any], kv_heads: int, head_size: int, tmp_path: Path
) -> None:
    left_out = {"num_attention_heads": 64, "hidden_size": 1024, "num_key_value_heads": ..., "head_dim": ...}
    config = make_config(tmp_path, **(changed | left_out))
    assert (config.kv_heads, config.head_size) == (kv_heads, head_size)


SLIDING, FULL = "sliding_attention", "full_attention"
WINDOWS: dict[str, tuple[dict[str, Any], tuple[int | None, int | None]]] = {
    "llama has none": ({}, (None, None)),
    "mistral's": (MISTRAL | {"sliding_window": 100}, (100, 100)),
    "mistral without": (MISTRAL | {"sliding_window": None}, (None, None)),
    "mistral's default": (MISTRAL | {"max_position_embeddings": 9000}, (4096, 4096)),
    "as wide as the context is none": (MISTRAL | {"sliding_window": 1024}, (None, None)),
    "qwen2 that does not use it": (QWEN2 | {"sliding_window": 100}, (None, None)),
    "qwen2's upper layer": (
        QWEN2 | {"use_sliding_window": True, "sliding_window": 100, "max_window_layers": 1},
        (None, 100),
    ),
    "qwen3's named layers": (
        QWEN3 | {"use_sliding_window": True, "sliding_window": 100, "layer_types": [SLIDING, FULL]},
        (100, None),
    ),
}


@pytest.mark.parametrize(("changed", "windows"), WINDOWS.values(), ids=WINDOWS)
def test_each_layer_has_its_window(changed: dict[str, Any], windows: tuple[int | None, ...], tmp_path: Path) -> None:
    assert make_config(tmp_path, **changed).windows == windows


def test_biases_and_norms_are_the_familys(tmp_path: Path) -> None:
    def added(**changed: Any) -> tuple[bool, bool, bool, bool]:
        config = make_config(tmp_path, **changed)
        return config.has_qkv_bias, config.has_output_bias, config.has_mlp_bias, config.has_qk_norm

    assert added() == (False, False, False, False)
    assert added(attention_bias=True) == (True, True, False, False)
    assert added(mlp_bias=True) == (False, False, True, False)
    assert added(**MISTRAL) == (False, False, False, False)
    assert added(**QWEN2) == (True, False, False, False)
    assert added(**QWEN3) == (False, False, False, True)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"architectures": ["GPT2LMHeadModel"]}, "architectures"),
    ({"architectures": ...}, "architectures"),
    ({"hidden_size": ...}, "hidden_size"),
    ({"hidden_size": "64"}, "hidden_size"),
    ({"num_hidden_layers": 0}, "num_hidden_layers"),
    ({"num_hidden_layers": True}, "num_hidden_layers"),
    ({"num_key_value_heads": 3}, "num_key_value_heads"),
    ({"head_dim": 20}, "head_dim"),
    ({"hidden_act": "gelu"}, "hidden_act"),
    ({"attention_bias": 1}, "attention_bias"),
    (MISTRAL | {"attention_bias": True}, "attention_bias"),
    (QWEN2 | {"attention_bias": False}, "attention_bias"),
    (QWEN3 | {"mlp_bias": True}, "mlp_bias"),
    ({"head_dim": 272}, "head_dim"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    ({"residual_multiplier": 0.2}, "residual_multiplier"),
    ({"sliding_window": 100}, "sliding_window"),
    ({"layer_types": [SLIDING, FULL]}, "layer_types"),
    (MISTRAL | {"sliding_window": 100, "layer_types": [SLIDING, FULL]}, "layer_types"),
    (MISTRAL | {"sliding_window": 0}, "sliding_window"),
    (QWEN2 | {"layer_types": [SLIDING, FULL]}, "layer_types"),
    (QWEN2 | {"layer_types": [FULL]}, "layer_types"),
    (QWEN2 | {"layer_types": [FULL, "chunked_attention"]}, "layer_types"),
    (QWEN2 | {"max_window_layers": -1}, "max_window_layers"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ({"rms_norm_eps": -1}, "rms_norm_eps"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ({"rope_scaling": "linear"}, "rope_scaling"),
    ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, r"rope_scaling\.rope_type"),
    ({"rope_scaling": {"rope_type": "default", "mrope_section": [16, 24]}}, r"rope_scaling\.mrope_section"),
    ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, r"rope_parameters\.full_attention"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_slow": 40}}, r"rope_scaling\.beta_slow"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1}}, r"rope_scaling\.rope_theta"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": 3}}, r"rope_scaling\.truncate"),
    ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor"),
    (
        {"rope_scaling": {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0}},
        r"rope_scaling\.low",
    ),
]


@pytest.mark.parametrize(("changed", "field"), BAD, ids=str)
def test_what_could_not_be_honoured_is_refused_by_name(changed: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=rf"config\.json: {field}"):
        make_config(tmp_path, **changed)


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_what_is_no_object_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BadModel, match=r"config\.json: is no JSON"):
        read_config(tmp_path)
