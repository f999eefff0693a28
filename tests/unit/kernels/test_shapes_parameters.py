"""Parameters counted from configs against published counts, and the models that have a name."""

import json
from pathlib import Path
from typing import Any

import pytest

from kernels.models.configs import read_config
from kernels.models.presets import PRESETS, preset_shape
from kernels.shapes import Layers

CHECKOUT = Path(__file__).parents[3]
DEMO = CHECKOUT / "engine_agent" / "demo" / "model" / "config.json"


def llama_like(
    model_type: str, layers: int, hidden: int, heads: int, kept: int, width: int, vocabulary: int
) -> dict[str, Any]:
    return {
        "model_type": model_type, "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kept, "intermediate_size": width, "vocab_size": vocabulary,
    }  # fmt: skip


PUBLISHED: dict[str, tuple[dict[str, Any], int, int]] = {
    "Qwen2.5 0.5B": (
        {**llama_like("qwen2", 24, 896, 14, 2, 4864, 151_936), "tie_word_embeddings": True},
        494_032_768,
        494_032_768,
    ),
    "Gemma 2 2B": (
        {**llama_like("gemma2", 26, 2304, 8, 4, 9216, 256_000), "head_dim": 256, "sliding_window": 4096},
        2_614_341_888,
        2_614_341_888,
    ),
    "Gemma 3 1B": (
        {**llama_like("gemma3_text", 26, 1152, 4, 1, 6912, 262_144), "head_dim": 256, "sliding_window": 512},
        999_885_952,
        999_885_952,
    ),
    "Phi-3 mini": (llama_like("phi3", 32, 3072, 32, 32, 8192, 32_064), 3_821_079_552, 3_821_079_552),
    "Mixtral 8x7B": (
        {**llama_like("mixtral", 32, 4096, 32, 8, 14_336, 32_000), "num_local_experts": 8, "num_experts_per_tok": 2},
        46_702_792_704,
        12_879_925_248,
    ),
    "Qwen1.5 MoE A2.7B": (
        {
            **llama_like("qwen2_moe", 24, 2048, 16, 16, 5632, 151_936),
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "decoder_sparse_step": 1,
        },
        14_315_784_192,
        2_689_173_504,
    ),
    "Qwen3 30B A3B": (
        {
            **llama_like("qwen3_moe", 48, 2048, 32, 4, 6144, 151_936),
            "head_dim": 128,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
        30_532_122_624,
        3_353_032_704,
    ),
    "DeepSeek V2 Lite": (
        {
            **llama_like("deepseek_v2", 27, 2048, 16, 16, 10_944, 102_400),
            "moe_intermediate_size": 1408,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
            "kv_lora_rank": 512,
            "q_lora_rank": None,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        },
        15_706_484_224,
        2_661_150_208,
    ),
}


@pytest.mark.parametrize("case", PUBLISHED.values(), ids=PUBLISHED)
def test_parameters_are_counted_to_the_last_one(case: tuple[dict[str, Any], int, int]) -> None:
    config, total, active = case
    found = read_config(config).parameters
    assert found is not None
    assert (found.total, found.active, found.source) == (total, active, "computed")


@pytest.mark.parametrize("slug", PRESETS)
def test_a_named_model_has_the_parameters_it_was_published_with(slug: str) -> None:
    preset, published = PRESETS[slug], preset_shape(slug).parameters
    counted = read_config(preset.config).parameters
    assert published is not None
    assert counted is not None
    assert published.source == "published"
    if preset.active is None:
        assert published.total == counted.total == counted.active
    else:  # the card's round billions; Scout's also have its eyes in them
        assert published.total == pytest.approx(counted.total, rel=0.012)
        assert published.active == pytest.approx(counted.active, rel=0.02)


def test_every_model_the_sources_name_has_a_name_here() -> None:
    assert set(PRESETS) == {
        *("deepseek-r1", "deepseek-v2", "deepseek-v3", "llama-2-70b", "llama-2-7b", "llama-3-70b", "llama-3-8b"),
        *("llama-3.1-405b", "llama-3.1-70b", "llama-3.1-8b", "llama-3.3-70b", "llama-4-scout", "mistral-7b-v0.1"),
        *("mistral-7b-v0.3", "qwen2.5-7b", "qwen3-0.6b", "qwen3-coder-480b"),
    }
    assert all(PRESETS[slug].repository in preset_shape(slug).source for slug in PRESETS)


def test_what_a_family_needs_and_a_config_lacks_is_not_guessed() -> None:
    config = llama_like("llama", 2, 64, 4, 2, 128, 100)
    del config["vocab_size"]
    assert read_config(config).parameters is None
    assert read_config({**llama_like("gpt_neox", 2, 64, 4, 4, 128, 100)}).parameters is None


def test_layers_with_heads_of_their_own_are_counted_one_by_one() -> None:
    plain = llama_like("llama", 4, 64, 8, 8, 128, 100)
    alike = read_config(plain).parameters
    own = read_config({**plain, "num_key_value_heads": [1, 2, 4, 8]})
    assert [one.kv_heads for one in own.layers] == [1, 2, 4, 8]
    assert alike is not None
    assert own.parameters is not None
    assert own.parameters.total == alike.total - 2 * 64 * 8 * (7 + 6 + 4 + 0)
    queries = read_config({**plain, "num_attention_heads": [8, 8, 8, 16], "head_dim": 8})
    assert queries.parameters is not None
    assert queries.parameters.total == alike.total + 2 * 64 * 8 * 8


@pytest.mark.parametrize(
    "more",
    [
        {"num_key_value_heads": [0, 2, 4, 8]},
        {"num_key_value_layers": 2},
        {"intermediate_size": [128] * 4},
        {"model_type": "deepseek_v3", "kv_lora_rank": None},
    ],
)
def test_layers_that_a_family_does_not_have_leave_the_count_open(more: dict[str, Any]) -> None:
    assert read_config({**llama_like("llama", 4, 64, 8, 8, 128, 100), **more}).parameters is None


def test_a_count_beyond_any_model_is_not_known_and_refuses_nothing() -> None:
    found = read_config({**llama_like("llama", 4096, 10**7, 8, 8, 10**7, 10**7), "head_dim": 64})
    assert found.parameters is None
    assert found.layers == (Layers("full", 4096, 8, 8, 64, 64),)


def test_what_was_assumed_for_a_count_is_not_said_where_there_is_none() -> None:
    config = {**llama_like("deepseek_v2", 2, 64, 4, 4, 128, 100), "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    found = read_config(config)
    assert (found.parameters, found.notes) == (None, ())


def test_biases_and_tied_embeddings_count() -> None:
    plain = llama_like("llama", 2, 64, 4, 2, 128, 100)

    def total(**more: Any) -> int:
        found = read_config({**plain, **more}).parameters
        assert found is not None
        return found.total

    assert total(tie_word_embeddings=True) == total() - 100 * 64
    assert total(attention_bias=True) == total() + 2 * (64 + 32 + 32 + 64)
    assert total(model_type="qwen2") == total() + 2 * (64 + 32 + 32)


def test_the_demo_model_is_read_from_its_own_config() -> None:
    found = read_config(json.loads(DEMO.read_text(encoding="utf-8")))
    assert (found.query_heads, found.kv_heads, found.key_size) == (4, 2, 64)
