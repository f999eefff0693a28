"""Configs that cannot be, or do not tell enough: refused by the field's name, whatever is in it."""

import copy
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.calculator.answer import FormatRow
from kernels.calculator.asked import asked
from kernels.calculator.calculating import calculate
from kernels.errors import InvalidArgument
from kernels.models.configs import read_config
from kernels.models.presets import PRESETS
from kernels.shapes import Layers
from tests.unit.kernels.test_shapes_configs import PLAIN, QWEN_3_NEXT

WITHOUT: dict[str, Any] = {"num_key_value_heads": None}
EACH_ITS_OWN: dict[str, Any] = {
    **PLAIN, "num_hidden_layers": 65, "head_dim": 64,
    "num_attention_heads": [2 * (at + 1) for at in range(65)], "num_key_value_heads": [at + 1 for at in range(65)],
}  # fmt: skip
REFUSED: dict[str, tuple[Any, str]] = {
    "a list": ([], "config"),
    "text": ("llama", "config"),
    "nothing": ({}, "config.num_hidden_layers"),
    "no heads": ({"num_hidden_layers": 2}, "config.num_attention_heads"),
    "no sizes": ({"num_hidden_layers": 2, "num_attention_heads": 2}, "config.hidden_size"),
    "no layers": ({**PLAIN, "num_hidden_layers": 0}, "config.num_hidden_layers"),
    "negative layers": ({**PLAIN, "num_hidden_layers": -1}, "config.num_hidden_layers"),
    "half a layer": ({**PLAIN, "num_hidden_layers": 1.5}, "config.num_hidden_layers"),
    "layers as a float": ({**PLAIN, "num_hidden_layers": 12.0}, "config.num_hidden_layers"),
    "layers in words": ({**PLAIN, "num_hidden_layers": "12"}, "config.num_hidden_layers"),
    "true layers": ({**PLAIN, "num_hidden_layers": True}, "config.num_hidden_layers"),
    "too many layers": ({**PLAIN, "num_hidden_layers": 10**9}, "config.num_hidden_layers"),
    "NaN layers": ({**PLAIN, "num_hidden_layers": math.nan}, "config.num_hidden_layers"),
    "a huge number": ({**PLAIN, "num_attention_heads": 10**400}, "config.num_attention_heads"),
    "more KV heads than heads": ({**PLAIN, "num_key_value_heads": 16}, "config.num_key_value_heads"),
    "KV heads that divide no heads": ({**PLAIN, "num_key_value_heads": 3}, "config.num_key_value_heads"),
    "no KV head": ({**PLAIN, "num_key_value_heads": 0}, "config.num_key_value_heads"),
    "a head size nothing tells": ({**PLAIN, "hidden_size": 500}, "config.head_dim"),
    "no head size at all": ({**PLAIN, "head_dim": 0}, "config.head_dim"),
    "a list of other length": ({**PLAIN, "layer_types": ["full_attention"]}, "config.layer_types"),
    "an unknown kind of layer": (
        {**PLAIN, "layer_types": ["full_attention"] * 11 + ["psychic"]},
        "config.layer_types.11",
    ),
    "kinds that are no words": ({**PLAIN, "layer_types": [{}] * 12}, "config.layer_types.0"),
    "a window nobody is said to have": ({**PLAIN, "sliding_window": 4096}, "config.layer_types"),
    "windows without a size": ({**PLAIN, "layer_types": ["sliding_attention"] * 12}, "config.sliding_window"),
    "no chunk": ({**PLAIN, "layer_types": ["chunked_attention"] * 12}, "config.attention_chunk_size"),
    "a negative window": ({**PLAIN, "model_type": "mistral", "sliding_window": -1}, "config.sliding_window"),
    "an empty pattern": (
        {**PLAIN, "model_type": "exaone4", "sliding_window": 4, "sliding_window_pattern": ""},
        "config.sliding_window_pattern",
    ),
    "a pattern of other letters": (
        {**PLAIN, "hybrid_override_pattern": "M" * 11 + "x"},
        "config.hybrid_override_pattern",
    ),
    "Qwen's window since nobody knows when": (
        {**PLAIN, "model_type": "qwen3_moe", "sliding_window": 4096, "use_sliding_window": True},
        "config.max_window_layers",
    ),
    "a flag that is none": (
        {**PLAIN, "model_type": "qwen2", "sliding_window": 4, "use_sliding_window": "no"},
        "config.use_sliding_window",
    ),
    "as many shared as there are": ({**PLAIN, "num_kv_shared_layers": 12}, "config.num_kv_shared_layers"),
    "sharing by nothing": ({**PLAIN, "use_cla": True}, "config.cla_share_factor"),
    "sharing that divides no layers": ({**PLAIN, "num_key_value_layers": 5}, "config.num_key_value_layers"),
    "a latent cache without its rotary part": ({**PLAIN, "kv_lora_rank": 512}, "config.qk_rope_head_dim"),
    "an encoder": ({**PLAIN, "is_encoder_decoder": True}, "config.is_encoder_decoder"),
    "cross attention": ({**PLAIN, "cross_attention_layers": [3]}, "config.cross_attention_layers"),
    "both kinds at once": ({**PLAIN, "model_type": "falcon_h1"}, "config.model_type"),
    "a type that is no text": ({**PLAIN, "model_type": 5}, "config.model_type"),
    "a block that is none": ({**PLAIN, "num_hidden_layers": 1, "block_configs": [None]}, "config.block_configs.0"),
    "too few heads for a layer": (
        {**PLAIN, **WITHOUT, "num_hidden_layers": 2, "num_kv_heads": [8, 16]},
        "config.num_kv_heads.1",
    ),
    "a state without one of its sizes": (
        {**QWEN_3_NEXT, "linear_key_head_dim": None},
        "config.linear_key_head_dim",
    ),
    "too many kinds of layers": (
        {**EACH_ITS_OWN, "num_key_value_heads": [1] * 65},
        "config.num_attention_heads",
    ),
    "too many kinds of layers beside a list that is none": (
        {**EACH_ITS_OWN, "num_kv_heads": [{}] * 65},
        "config.num_key_value_heads",
    ),
    "too many kinds of layers by KV heads": (
        EACH_ITS_OWN,
        "config.num_key_value_heads",
    ),
    "a mistake inside": ({"text_config": {**PLAIN, "num_hidden_layers": 0}}, "config.text_config.num_hidden_layers"),
    "nested without end": (
        {"text_config": {"text_config": {"text_config": {"text_config": PLAIN}}}},
        "config.text_config.text_config.text_config",
    ),
    "a quantisation that is no object": ({**PLAIN, "quantization_config": 4}, "config.quantization_config"),
    "a context that is none": ({**PLAIN, "max_position_embeddings": -5}, "config.max_position_embeddings"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_config_that_cannot_be_is_refused_by_its_field(case: tuple[Any, str]) -> None:
    config, field = case
    with pytest.raises(InvalidArgument) as caught:
        read_config(config)
    assert caught.value.argument == field


def test_a_refusal_is_short_and_on_one_line_whatever_was_given() -> None:
    for value in ("x" * 10**6, [0] * 10**6, {"a": {"b": "c" * 10**6}}, 10**5000, "\x1b[31m\nred"):
        with pytest.raises(InvalidArgument) as caught:
            read_config({**PLAIN, "num_attention_heads": value})
        assert len(str(caught.value)) < 300
        assert str(caught.value).isprintable()


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.integers(-2, 70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
FIELDS = [
    *sorted({name for one in PRESETS.values() for name in (*one.config, *one.config.get("text_config", ()))}),
    *("layer_types", "n_layer", "num_kv_heads", "num_kv_shared_layers", "cla_share_factor", "use_cla", "block_configs"),
    *("sliding_window_pattern", "hybrid_override_pattern", "attn_type_list", "mamba_d_state", "text_config", "bits"),
    *("attn_config", "multi_query", "num_key_value_layers", "mlp_only_layers", "no_rope_layers", "attn_layer_period"),
]


def outcome(config: object) -> tuple[InvalidArgument | None, tuple[FormatRow, ...]]:
    try:
        found = calculate(asked(config=config, kv_dtypes=["all"], accelerator="b300", tensor_parallel=2))
    except InvalidArgument as error:
        return error, ()
    return None, found.rows


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(PRESETS)), st.dictionaries(st.sampled_from(FIELDS), HOSTILE, max_size=4), st.booleans())
def test_whatever_is_in_a_config_it_is_counted_or_refused(slug: str, wrong: dict[str, Any], inside: bool) -> None:
    config = copy.deepcopy(dict(PRESETS[slug].config))
    target = config["text_config"] if inside and isinstance(config.get("text_config"), dict) else config
    target.update(wrong)
    refused, rows = outcome(config)
    if refused is None:
        assert all(one.bytes_per_request >= one.bytes_per_token for one in rows)
    else:
        assert refused.argument
        assert str(refused).isprintable()


@pytest.mark.parametrize(
    "layers",
    [
        {"kind": "other", "count": 1},
        {"kind": "full", "count": 0},
        {"kind": "full", "count": 1, "query_heads": 4, "kv_heads": 8, "key_size": 64, "value_size": 64},
        {"kind": "full", "count": 1, "query_heads": 4, "kv_heads": 3, "key_size": 64, "value_size": 64},
        {"kind": "full", "count": 1, "query_heads": 4, "kv_heads": 4, "key_size": 64, "value_size": 0},
        {"kind": "window", "count": 1, "query_heads": 4, "kv_heads": 4, "key_size": 64, "value_size": 64},
        {"kind": "state", "count": 1, "state_bytes": -1},
    ],
)
def test_layers_that_cannot_be_are_refused(layers: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Layers(**layers)
