"""What a config.json may say, and what is refused by name."""

from pathlib import Path
from typing import Any

import pytest

from engine_agent.engine.config import RopeConfig, read_config
from engine_agent.engine.errors import BadModel
from tests.unit.engine.making import make_config


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
    ({"attention_bias": True}, "attention_bias"),
    ({"mlp_bias": True}, "mlp_bias"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ({"rms_norm_eps": -1}, "rms_norm_eps"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ({"rope_scaling": "linear"}, "rope_scaling"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_scaling.rope_type"),
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
