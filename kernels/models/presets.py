"""Models with a name of their own: the fields of their published configs that count, and their published sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from kernels.models.configs import read_config
from kernels.shapes import ModelShape, Parameters, refused


@dataclass(frozen=True, slots=True)
class Preset:
    slug: str
    name: str
    repository: str  # on the Hugging Face hub, whose config.json and model card are the source
    total: int  # parameters, as published; where `active` is given, in the card's round billions
    config: Mapping[str, Any]
    active: int | None = None


def _llama(
    layers: int, hidden: int, width: int, heads: tuple[int, int], vocabulary: int, context: int
) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
    }


def _mistral(window: int | None, vocabulary: int) -> dict[str, Any]:
    shape = _llama(32, 4096, 14_336, (32, 8), vocabulary, 32_768)
    return {**shape, "model_type": "mistral", "sliding_window": window}


LLAMA_3_8B = _llama(32, 4096, 14_336, (32, 8), 128_256, 8192)
LLAMA_3_70B = _llama(80, 8192, 28_672, (64, 8), 128_256, 8192)
LONG = {"max_position_embeddings": 131_072}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18_432,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "topk_method": "noaux_tc",
    "vocab_size": 129_280,
    "max_position_embeddings": 163_840,
    "quantization_config": {"quant_method": "fp8"},
}
DEEPSEEK_V2 = {
    **DEEPSEEK_V3,
    "model_type": "deepseek_v2",
    "num_hidden_layers": 60,
    "hidden_size": 5120,
    "intermediate_size": 12_288,
    "moe_intermediate_size": 1536,
    "n_routed_experts": 160,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "topk_method": "group_limited_greedy",
    "vocab_size": 102_400,
    "quantization_config": None,
}
LLAMA_4_SCOUT = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text",
        "num_hidden_layers": 48,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16_384,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_chunk_size": 8192,
        "no_rope_layers": [],
        "interleave_moe_layer_step": 1,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "vocab_size": 202_048,
        "max_position_embeddings": 10_485_760,
    },
}
QWEN_2_5_7B = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "use_sliding_window": False,
    "sliding_window": 131_072,
    "max_window_layers": 28,
    "vocab_size": 152_064,
    "max_position_embeddings": 131_072,
}
QWEN_3_600M = {
    "model_type": "qwen3",
    "num_hidden_layers": 28,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 28,
    "tie_word_embeddings": True,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
}
QWEN_3_CODER = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 62,
    "hidden_size": 6144,
    "intermediate_size": 8192,
    "moe_intermediate_size": 2560,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts": 160,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "use_sliding_window": False,
    "vocab_size": 151_936,
    "max_position_embeddings": 262_144,
}
MISTRAL_V1, MISTRAL_V3 = _mistral(4096, 32_000), _mistral(None, 32_768)
LLAMA_2_7B = _llama(32, 4096, 11_008, (32, 32), 32_000, 4096)
LLAMA_2_70B = _llama(80, 8192, 28_672, (64, 8), 32_000, 4096)
LLAMA_405B = {**_llama(126, 16_384, 53_248, (128, 8), 128_256, 131_072)}

PRESETS: dict[str, Preset] = {
    preset.slug: preset
    for preset in (
        Preset("deepseek-r1", "DeepSeek R1", "deepseek-ai/DeepSeek-R1", 671 * 10**9, DEEPSEEK_V3, 37 * 10**9),
        Preset("deepseek-v2", "DeepSeek V2", "deepseek-ai/DeepSeek-V2", 236 * 10**9, DEEPSEEK_V2, 21 * 10**9),
        Preset("deepseek-v3", "DeepSeek V3", "deepseek-ai/DeepSeek-V3", 671 * 10**9, DEEPSEEK_V3, 37 * 10**9),
        Preset("llama-2-70b", "Llama 2 70B", "meta-llama/Llama-2-70b-hf", 68_976_648_192, LLAMA_2_70B),
        Preset("llama-2-7b", "Llama 2 7B", "meta-llama/Llama-2-7b-hf", 6_738_415_616, LLAMA_2_7B),
        Preset("llama-3-70b", "Llama 3 70B", "meta-llama/Meta-Llama-3-70B", 70_553_706_496, LLAMA_3_70B),
        Preset("llama-3-8b", "Llama 3 8B", "meta-llama/Meta-Llama-3-8B", 8_030_261_248, LLAMA_3_8B),
        Preset("llama-3.1-405b", "Llama 3.1 405B", "meta-llama/Llama-3.1-405B", 405_853_388_800, LLAMA_405B),
        Preset("llama-3.1-70b", "Llama 3.1 70B", "meta-llama/Llama-3.1-70B", 70_553_706_496, {**LLAMA_3_70B, **LONG}),
        Preset("llama-3.1-8b", "Llama 3.1 8B", "meta-llama/Llama-3.1-8B", 8_030_261_248, {**LLAMA_3_8B, **LONG}),
        Preset(
            "llama-3.3-70b",
            "Llama 3.3 70B",
            "meta-llama/Llama-3.3-70B-Instruct",
            70_553_706_496,
            {**LLAMA_3_70B, **LONG},
        ),
        Preset(
            "llama-4-scout",
            "Llama 4 Scout",
            "meta-llama/Llama-4-Scout-17B-16E",
            109 * 10**9,
            LLAMA_4_SCOUT,
            17 * 10**9,
        ),
        Preset("mistral-7b-v0.1", "Mistral 7B v0.1", "mistralai/Mistral-7B-v0.1", 7_241_732_096, MISTRAL_V1),
        Preset("mistral-7b-v0.3", "Mistral 7B v0.3", "mistralai/Mistral-7B-v0.3", 7_248_023_552, MISTRAL_V3),
        Preset("qwen2.5-7b", "Qwen2.5 7B", "Qwen/Qwen2.5-7B", 7_615_616_512, QWEN_2_5_7B),
        Preset("qwen3-0.6b", "Qwen3 0.6B", "Qwen/Qwen3-0.6B", 596_049_920, QWEN_3_600M),
        Preset(
            "qwen3-coder-480b",
            "Qwen3 Coder 480B",
            "Qwen/Qwen3-Coder-480B-A35B-Instruct",
            480 * 10**9,
            QWEN_3_CODER,
            35 * 10**9,
        ),
    )
}


def preset_named(slug: object) -> Preset:
    """Raises InvalidArgument for a name no preset has."""
    found = PRESETS.get(slug) if isinstance(slug, str) else None
    if found is None:
        raise refused("model", slug, f"one of {', '.join(PRESETS)}")
    return found


@cache
def preset_shape(slug: str) -> ModelShape:
    """The shape its config has, with the published number of parameters."""
    preset = preset_named(slug)
    shape = read_config(preset.config, name=preset.name, source=f"config.json and model card of {preset.repository}")
    counted = shape.parameters
    assert counted is not None
    active = preset.total if preset.active is None else preset.active
    published = Parameters(preset.total, active, "published", counted.experts, counted.experts_per_token)
    return replace(shape, parameters=published)
