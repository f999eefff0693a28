"""Model types that are known here, and what their own classes take for a field that a config may leave out.

Only fields that decide how large a cache is, or how many parameters are counted. The numbers are those of the classes
in transformers 5.19, and a test compares them with what is installed. A row for a field that another one decides, or
that every config has, is not needed: what is missing without a row here is refused.
"""

from collections.abc import Mapping

# What a config without `text_config`, or with one that has no type of its own, is read as.
TEXT_TYPES = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_vl": "qwen3_vl_text",
}
_QWEN: dict[str, int] = {"use_sliding_window": False, "sliding_window": 4096}
_QWEN_VL: dict[str, int] = {**_QWEN, "num_key_value_heads": 8, "max_window_layers": 80}
_DEEPSEEK: dict[str, int] = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
_DEEPSEEK_V3: dict[str, int] = {**_DEEPSEEK, "first_k_dense_replace": 3, "n_shared_experts": 1}
_GEMMA: dict[str, int] = {"num_attention_heads": 8, "head_dim": 256}
DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "bamba": {"num_key_value_heads": 8},
    "cohere2": {"sliding_window": 4096},
    "dbrx": {"num_key_value_heads": 1},  # its attn_config's kv_n_heads
    "deepseek_v2": {**_DEEPSEEK, "first_k_dense_replace": 0, "n_shared_experts": 2},
    "deepseek_v3": _DEEPSEEK_V3,
    "exaone4": {"num_key_value_heads": 32, "sliding_window": 4096},
    "falcon": {"multi_query": True, "new_decoder_architecture": False},
    "gemma": {"num_key_value_heads": 16, "head_dim": 256},
    "gemma2": {**_GEMMA, "num_key_value_heads": 4, "sliding_window": 4096},
    "gemma3_text": {**_GEMMA, "num_key_value_heads": 4, "sliding_window": 4096, "vocab_size": 262_208},
    "gemma3n_text": {**_GEMMA, "num_key_value_heads": 2, "sliding_window": 512, "num_kv_shared_layers": 15},
    "glm": {"num_key_value_heads": 2, "head_dim": 128},
    "glm4": {"num_key_value_heads": 2, "head_dim": 128},
    "gpt_bigcode": {"multi_query": True},
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128},
    "jamba": {"num_key_value_heads": 8, "attn_layer_period": 8, "attn_layer_offset": 4},
    "kimi_k2": _DEEPSEEK_V3,  # the same class
    "lfm2": {"num_key_value_heads": 8},
    "llama4_text": {
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_chunk_size": 8192,
        "no_rope_layer_interval": 4,
        "interleave_moe_layer_step": 1,
    },
    "minicpm3": {"kv_lora_rank": 256, "qk_rope_head_dim": 32},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "mixtral": {"num_key_value_heads": 8},
    "nemotron_h": {"num_key_value_heads": 8, "head_dim": 128},
    "olmo3": {"sliding_window": 4096},
    "phimoe": {"num_key_value_heads": 8},
    "qwen2": {**_QWEN, "num_key_value_heads": 32, "max_window_layers": 28},
    "qwen2_5_vl_text": _QWEN_VL,
    "qwen2_moe": {**_QWEN, "num_key_value_heads": 16, "max_window_layers": 28, "decoder_sparse_step": 1},
    "qwen2_vl_text": _QWEN_VL,
    "qwen3": {**_QWEN, "num_key_value_heads": 32, "head_dim": 128, "max_window_layers": 28},
    "qwen3_moe": {**_QWEN, "num_key_value_heads": 4, "decoder_sparse_step": 1},
    "qwen3_next": {"num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4},
    "qwen3_vl_text": {"num_key_value_heads": 32, "head_dim": 128},
    "smollm3": {"num_key_value_heads": 4, "use_sliding_window": False},
    "stablelm": {"num_key_value_heads": 32},
    "starcoder2": {"num_key_value_heads": 2},
}
KNOWN = {
    *("bamba", "bloom", "chatglm", "cohere", "cohere2", "dbrx", "deepseek_v2", "deepseek_v3", "exaone4", "falcon"),
    *("gemma", "gemma2", "gemma3_text", "gemma3n_text", "glm", "glm4", "gpt2", "gpt_bigcode", "gpt_neox", "gpt_oss"),
    *("gptj", "granite", "granitemoe", "granitemoehybrid", "hunyuan", "jamba", "kimi_k2", "lfm2", "llama"),
    *("llama4_text", "mamba", "mamba2", "minicpm3", "mistral", "mixtral", "mpt", "nemotron", "nemotron-nas"),
    *("nemotron_h", "olmo", "olmo2", "olmo3", "openelm", "opt", "phi", "phi3", "phimoe", "qwen2", "qwen2_5_vl_text"),
    *("qwen2_moe", "qwen2_vl_text", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_vl_text", "rwkv", "smollm3"),
    *("stablelm", "starcoder2"),
}
# Both kinds of layers at once, or keys and values by rules that no field of the config tells.
UNREADABLE = ("falcon_h1", "gemma4", "recurrent_gemma", "rwkv5", "rwkv6", "rwkv7", "swiftkv", "zamba")


def text_type(model_type: str) -> str:
    """The type of the language model inside."""
    return TEXT_TYPES.get(model_type, model_type)
