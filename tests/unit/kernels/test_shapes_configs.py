"""Configs of every family, as their model types mean them."""

from typing import Any

import pytest

from kernels.models.configs import read_config
from kernels.shapes import Layers, ModelShape

PLAIN: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
}


def read(**fields: Any) -> ModelShape:
    return read_config({**PLAIN, **fields})


def kinds(shape: ModelShape) -> dict[str, int]:
    return {one.kind: one.count for one in shape.layers}


def bare(**fields: Any) -> ModelShape:
    return read_config(fields)


def test_llama_says_everything() -> None:
    assert read(max_position_embeddings=4096).layers == (Layers("full", 12, 8, 2, 64, 64),)
    assert read(max_position_embeddings=4096).context_tokens == 4096
    assert read(head_dim=80).layers == (Layers("full", 12, 8, 2, 80, 80),)
    assert read(head_dim=192, v_head_dim=128).layers == (Layers("full", 12, 8, 2, 192, 128),)


@pytest.mark.parametrize(("kept", "attention"), [(8, "MHA"), (2, "GQA"), (1, "MQA")])
def test_attention_is_named_by_its_heads(kept: int, attention: str) -> None:
    assert read(num_key_value_heads=kept).attention == attention


def test_without_kv_heads_each_query_head_has_its_own_and_a_note_says_so() -> None:
    found = read(num_key_value_heads=None)
    assert found.kv_heads == 8
    assert any("MHA" in note for note in found.notes)


def test_defaults_of_a_model_types_class_are_used_and_said() -> None:
    found = bare(model_type="mistral", num_hidden_layers=2, num_attention_heads=32, hidden_size=4096)
    assert found.kv_heads == 8
    assert any("num_key_value_heads is not in the config: 8" in note for note in found.notes)
    gemma = {"model_type": "gemma3_text", "num_hidden_layers": 34, "hidden_size": 2560, "sliding_window": 1024}
    assert bare(model_type="gemma3", text_config=gemma).layers == (
        Layers("window", 29, 8, 4, 256, 256, window_tokens=1024),
        Layers("full", 5, 8, 4, 256, 256),
    )


def test_older_names_mean_the_same() -> None:
    assert bare(model_type="gpt2", n_layer=12, n_head=12, n_embd=768, n_positions=1024).layers == (
        Layers("full", 12, 12, 12, 64, 64),
    )
    assert bare(model_type="gpt_bigcode", n_layer=2, n_head=16, n_embd=2048, multi_query=True).attention == "MQA"
    assert bare(model_type="mpt", n_layers=2, n_heads=8, d_model=512, attn_config={"kv_n_heads": 4}).kv_heads == 4
    glm = {"num_layers": 2, "num_attention_heads": 32, "kv_channels": 128, "hidden_size": 4096}
    assert bare(model_type="chatglm", multi_query_attention=True, multi_query_group_num=2, **glm).kv_heads == 2


def test_falcon_counts_its_kv_heads_in_its_own_way() -> None:
    falcon = {"model_type": "falcon", "num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544}
    assert bare(**falcon, multi_query=True, num_kv_heads=71).kv_heads == 1
    assert bare(**falcon, multi_query=False).kv_heads == 71
    large = {**falcon, "num_attention_heads": 128, "hidden_size": 8192, "multi_query": True}
    assert bare(**large, num_kv_heads=8, new_decoder_architecture=True).kv_heads == 8


def test_two_names_of_one_field_must_agree() -> None:
    assert bare(n_layer=2, num_hidden_layers=2, n_head=2, n_embd=64, model_type="gpt2").layer_count == 2
    with pytest.raises(ValueError, match=r"config\.n_layer: 3 is not what num_hidden_layers says"):
        bare(n_layer=3, num_hidden_layers=2, n_head=2, n_embd=64, model_type="gpt2")


def test_mistrals_window_is_every_layers() -> None:
    assert kinds(read(model_type="mistral", sliding_window=4096)) == {"window": 12}
    assert kinds(read(model_type="mistral", sliding_window=None)) == {"full": 12}
    assert kinds(read(model_type="phi3", sliding_window=2047)) == {"window": 12}


@pytest.mark.parametrize("model_type", ["qwen2", "qwen2_moe", "qwen3", "qwen3_moe"])
def test_qwens_window_begins_after_so_many_layers_and_only_if_it_is_used(model_type: str) -> None:
    qwen = {"model_type": model_type, "sliding_window": 4096, "max_window_layers": 9}
    assert kinds(read(**qwen, use_sliding_window=False)) == {"full": 12}
    assert kinds(read(**qwen)) == {"full": 12}
    assert kinds(read(**qwen, use_sliding_window=True)) == {"full": 9, "window": 3}
    assert read(**qwen, use_sliding_window=True).layers[0].kind == "full"


def test_gemma_and_gpt_oss_mix_windows_and_full_layers() -> None:
    assert kinds(read(model_type="gemma2", sliding_window=4096)) == {"window": 6, "full": 6}
    assert kinds(read(model_type="gemma3_text", sliding_window=512)) == {"window": 10, "full": 2}
    assert kinds(read(model_type="gemma3_text", sliding_window=512, sliding_window_pattern=4)) == {
        "window": 9,
        "full": 3,
    }
    assert kinds(read(model_type="cohere2", sliding_window=4096)) == {"window": 9, "full": 3}
    assert kinds(read(model_type="exaone4", sliding_window=4096, sliding_window_pattern="LLLG")) == {
        "window": 9,
        "full": 3,
    }
    oss = {"model_type": "gpt_oss", "sliding_window": 128}
    assert kinds(read(**oss)) == {"window": 6, "full": 6}
    assert kinds(read(**oss, layer_types=["sliding_attention"] * 11 + ["full_attention"])) == {"window": 11, "full": 1}


def test_llama_4_chunks_all_but_every_fourth_layer() -> None:
    four = {"model_type": "llama4_text", "attention_chunk_size": 8192}
    assert kinds(read(**four)) == {"chunked": 9, "full": 3}
    assert kinds(read(**four, no_rope_layers=[])) == {"chunked": 9, "full": 3}
    assert kinds(read(**four, no_rope_layers=[1] * 10 + [0] * 2)) == {"chunked": 10, "full": 2}
    assert kinds(read(**{**four, "attention_chunk_size": None})) == {"full": 12}


def test_a_language_model_inside_another_is_found() -> None:
    for name in ("text_config", "language_config", "llm_config"):
        assert read_config({"model_type": "llava", name: PLAIN}).layers == read().layers
    assert read_config({"thinker_config": {"text_config": PLAIN}}).layers == read().layers


def test_a_latent_cache_has_one_vector_and_no_value() -> None:
    found = read(model_type="deepseek_v3", kv_lora_rank=512, qk_rope_head_dim=64, v_head_dim=128)
    assert found.layers == (Layers("latent", 12, 8, 1, 576, 0),)
    assert found.attention == "MLA"


def test_the_last_layers_of_gemma_3n_read_what_others_keep() -> None:
    types = (["sliding_attention"] * 4 + ["full_attention"]) * 2 + ["sliding_attention", "full_attention"]
    found = read(model_type="gemma3n_text", sliding_window=512, layer_types=types, num_kv_shared_layers=4)
    assert kinds(found) == {"window": 7, "full": 1, "shared": 4}
    assert kinds(read(num_kv_shared_layers=0)) == {"full": 12}


def test_cross_layer_sharing_divides_by_its_factor() -> None:
    assert kinds(read(model_type="hunyuan", use_cla=True, cla_share_factor=2)) == {"full": 6, "shared": 6}
    assert kinds(read(model_type="hunyuan", use_cla=False, cla_share_factor=2)) == {"full": 12}
    assert kinds(read(num_key_value_layers=3)) == {"full": 3, "shared": 9}


def test_layers_may_have_heads_of_their_own() -> None:
    elm = {"model_type": "openelm", "num_transformer_layers": 3, "head_dim": 64, "model_dim": 1280}
    found = bare(**elm, num_query_heads=[12, 12, 16], num_kv_heads=[3, 3, 4])
    assert found.layers == (Layers("full", 2, 12, 3, 64, 64), Layers("full", 1, 16, 4, 64, 64))
    blocks = [
        {"attention": {"n_heads_in_group": 8, "no_op": False, "replace_with_linear": False}},
        {"attention": {"n_heads_in_group": None, "no_op": True, "replace_with_linear": False}},
        {"attention": {"n_heads_in_group": 4, "no_op": False}},
    ]
    nemotron = {"model_type": "nemotron-nas", "num_hidden_layers": 3, "num_attention_heads": 64, "hidden_size": 8192}
    found = bare(**nemotron, block_configs=blocks)
    assert [(one.kind, one.kv_heads) for one in found.layers] == [("full", 8), ("none", 0), ("full", 16)]


QWEN_3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}


def test_linear_attention_keeps_a_state_of_one_size() -> None:
    state = 32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2
    expected = (Layers("state", 36, state_bytes=state), Layers("full", 12, 16, 2, 256, 256))
    assert bare(**QWEN_3_NEXT).layers == expected
    types = (["linear_attention"] * 3 + ["full_attention"]) * 12
    assert bare(**QWEN_3_NEXT, layer_types=types).layers == expected


def test_mamba_layers_keep_a_state_of_one_size() -> None:
    jamba = {
        "model_type": "jamba", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "attn_layer_period": 8, "attn_layer_offset": 4,
        "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
    }  # fmt: skip
    state = 8192 * 16 * 4 + 8192 * 3 * 2
    assert bare(**jamba).layers == (Layers("state", 28, state_bytes=state), Layers("full", 4, 32, 8, 128, 128))
    mamba = {"model_type": "mamba", "num_hidden_layers": 64, "hidden_size": 2560, "intermediate_size": 5120}
    found = bare(**mamba, state_size=16, conv_kernel=4)
    assert found.layers == (Layers("state", 64, state_bytes=5120 * 16 * 4 + 5120 * 3 * 2),)
    assert found.attention == "none"


def test_mamba_2_layers_keep_a_matrix_for_each_head() -> None:
    nemotron = {
        "model_type": "nemotron_h", "num_hidden_layers": 6, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "hybrid_override_pattern": "M-M*-M",
        "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4,
    }  # fmt: skip
    state = 128 * 64 * 128 * 4 + (128 * 64 + 2 * 8 * 128) * 3 * 2
    assert bare(**nemotron).layers == (
        Layers("state", 3, state_bytes=state),
        Layers("none", 2),
        Layers("full", 1, 32, 8, 128, 128),
    )


def test_a_state_whose_size_no_field_tells_is_not_counted_and_said() -> None:
    found = read(layer_types=["linear_attention"] * 9 + ["full_attention"] * 3)
    assert found.layers[0].state_bytes is None
    assert any("states are: they are not counted" in note for note in found.notes)


def test_what_a_model_keeps_besides_is_said_not_to_be_counted() -> None:
    assert any("indexer" in note for note in read(index_head_dim=128).notes)


def test_layers_with_attention_may_be_listed() -> None:
    bamba = {"model_type": "bamba", "attn_layer_indices": [2, 7], "mamba_n_heads": 8, "mamba_d_head": 16}
    found = read(**bamba, mamba_n_groups=1, mamba_d_state=16, mamba_d_conv=4)
    assert kinds(found) == {"state": 10, "full": 2}


def test_an_unknown_model_type_is_read_as_a_plain_decoder_and_said() -> None:
    found = read(model_type="something_new")
    assert found.layers == read().layers
    assert any("'something_new' is not known" in note for note in found.notes)
    assert read().notes == ()


def test_how_weights_are_kept_is_read_from_the_config() -> None:
    assert read().weights_dtype == "bf16"
    assert read(torch_dtype="float32").weights_dtype == "fp32"
    assert read(quantization_config={"quant_method": "fp8"}).weights_dtype == "fp8"
    assert read(quantization_config={"quant_method": "mxfp4"}).weights_dtype == "mxfp4"
    assert read(quantization_config={"quant_method": "awq", "bits": 4}).weights_dtype == "int4"
    unknown = read(quantization_config={"quant_method": "compressed-tensors"})
    assert unknown.weights_dtype == "bf16"
    assert any("compressed-tensors" in note for note in unknown.notes)


def test_a_context_beyond_any_is_no_context() -> None:
    assert read(max_position_embeddings=10**20).context_tokens is None
    assert read(max_position_embeddings=1e30).context_tokens is None
