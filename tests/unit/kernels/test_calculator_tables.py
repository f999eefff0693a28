"""The published tables of KV cache sizes, every cell to the byte, and the errors they correct."""

from typing import Any

import pytest

from kernels.calculator.answer import FormatRow, HiddenSizeFormula
from kernels.calculator.asked import asked
from kernels.calculator.calculating import calculate

GIB, KIB = 2**30, 2**10
CONTEXTS = (8192, 32_768, 131_072)
MHA_70B = {
    "model_type": "llama",
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "hidden_size": 8192,
    "max_position_embeddings": 131_072,
}
MODELS = [
    ("llama-3-8b", 131_072, (1, 4, 16)),
    ("llama-3.1-8b", 131_072, (1, 4, 16)),
    ("llama-2-70b", 327_680, (2.5, 10, 40)),
    ("llama-3-70b", 327_680, (2.5, 10, 40)),
    ("llama-3.1-70b", 327_680, (2.5, 10, 40)),
    ("llama-3.3-70b", 327_680, (2.5, 10, 40)),
    (MHA_70B, 2_621_440, (20, 80, 320)),
    ("llama-3.1-405b", 516_096, (3.9375, 15.75, 63)),
    ("mistral-7b-v0.3", 131_072, (1, 4, 16)),
    ("llama-2-7b", 524_288, (4, 16, 64)),
    ("llama-4-scout", 196_608, (1.5, 6, 24)),  # all of its layers full
    ("qwen2.5-7b", 57_344, (0.4375, 1.75, 7)),
    ("qwen3-0.6b", 114_688, (0.875, 3.5, 14)),
]
# Format, bytes of a key's and a value's vector, times smaller to two digits, KiB a token of a 70B, GiB at 128K.
FORMATS = [
    ("fp32", 512, 512, 0.50, 640, 80),
    ("bf16", 256, 256, 1.00, 320, 40),
    ("fp8", 128, 128, 2.00, 160, 20),
    ("fp8_e4m3", 128, 128, 2.00, 160, 20),
    ("fp8_e5m2", 128, 128, 2.00, 160, 20),
    ("int8", 132, 132, 1.94, 165, 20.625),
    ("fp8_token_head", 132, 132, 1.94, 165, 20.625),
    ("int4", 68, 68, 3.76, 85, 10.625),
    ("int4_g32", 80, 80, 3.20, 100, 12.5),
    ("nvfp4", 72, 72, 3.56, 90, 11.25),
    ("nvfp4_row", 76, 76, 3.37, 95, 11.875),
    ("mxfp4", 68, 68, 3.76, 85, 10.625),
    ("kivi2", 48, 48, 5.33, 60, 7.5),
    ("k8v4", 132, 68, 2.56, 125, 15.625),
    ("int2", 36, 36, 7.11, 45, 5.625),
]


def row(model: object, kv_dtype: str = "bf16", **more: Any) -> FormatRow:
    which = {"config": model} if isinstance(model, dict) else {"model": model}
    return calculate(asked(kv_dtypes=[kv_dtype], **which, **more)).rows[0]


@pytest.mark.parametrize(("model", "bytes_per_token", "gib"), MODELS)
def test_each_models_cells_are_exact(model: object, bytes_per_token: int, gib: tuple[float, ...]) -> None:
    for context, expected in zip(CONTEXTS, gib, strict=True):
        found = row(model, context_tokens=context, respect_windows=False)
        assert (found.bytes_per_token, found.bytes_per_request) == (bytes_per_token, expected * GIB)


@pytest.mark.parametrize(("kv_dtype", "key", "value", "times", "kib", "gib"), FORMATS)
def test_each_formats_cells_are_exact(kv_dtype: str, key: int, value: int, times: float, kib: int, gib: float) -> None:
    found = row("llama-3.1-70b", kv_dtype, context_tokens=131_072)
    assert (found.key_vector_bytes, found.value_vector_bytes) == (key, value)
    assert round(found.times_smaller, 2) == times
    assert (found.bytes_per_token, found.bytes_per_request) == (kib * KIB, gib * GIB)


def test_every_format_there_is_has_its_line_in_the_table() -> None:
    found = calculate(asked(model="llama-3-8b", kv_dtypes=["all"])).rows
    assert {one.kv_dtype for one in found} == {name for name, *_ in FORMATS}
    offered = {"bf16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "k8v4", "int4", "nvfp4"}
    assert {one.kv_dtype for one in found if one.is_offered} == offered
    assert {one.kv_dtype for one in calculate(asked(model="llama-3-8b")).rows} == offered


@pytest.mark.parametrize(
    ("model", "bytes_per_token"), [("deepseek-v2", 69_120), ("deepseek-v3", 70_272), ("deepseek-r1", 70_272)]
)
def test_a_latent_cache_is_one_vector_of_rank_and_rotary_part(model: str, bytes_per_token: int) -> None:
    found = row(model)
    assert found.bytes_per_token == bytes_per_token == (512 + 64) * 2 * (60 if model == "deepseek-v2" else 61)
    assert (found.key_vector_bytes, found.value_vector_bytes) == (1152, 0)


def test_the_hidden_size_formula_is_corrected_where_kv_heads_are_fewer() -> None:
    found = calculate(asked(model="llama-3.1-70b")).hidden_size_formula
    assert found is not None
    assert (found.bytes_per_token, found.actual_bytes_per_token, found.factor) == (2_621_440, 327_680, 8.0)
    assert "8 KV heads, not 64" in found.message


def test_the_hidden_size_formula_is_right_for_mha() -> None:
    assert calculate(asked(model="llama-2-7b")).hidden_size_formula is None
    assert row("llama-2-7b").bytes_per_token == 2 * 32 * 4096 * 2


def formula(**config: Any) -> HiddenSizeFormula | None:
    return calculate(asked(config={"num_hidden_layers": 28, **config})).hidden_size_formula


def test_the_hidden_size_formula_is_wrong_for_mha_with_heads_of_their_own_size() -> None:
    """Gemma 7B: 16 heads of 256 are more than its hidden size of 3072."""
    found = formula(model_type="gemma", num_attention_heads=16, num_key_value_heads=16, head_dim=256, hidden_size=3072)
    assert found is not None
    assert (found.bytes_per_token, found.actual_bytes_per_token, found.factor) == (344_064, 458_752, 0.75)
    assert "is 0.75 × the truth: this model's layers, heads and sizes are not what it assumes." in found.message


def test_kv_heads_are_the_reason_only_where_they_explain_all_of_it() -> None:
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
    jamba = formula(model_type="jamba", attn_layer_period=8, attn_layer_offset=4, **heads)
    windows = formula(model_type="mistral", sliding_window=4096, **heads)
    elm = formula(model_type="openelm", **{**heads, "num_attention_heads": [8, *[32] * 27], "head_dim": 128})
    for found in (jamba, windows, elm):
        assert found is not None
        assert "KV heads" not in found.message
    plain = formula(model_type="llama", **heads)
    assert plain is not None
    assert plain.message.endswith("is 4 × the truth: this model has 8 KV heads, not 32.")


def test_one_latent_vector_is_the_reason_of_mla() -> None:
    found = calculate(asked(model="deepseek-v3")).hidden_size_formula
    assert found is not None
    assert found.message.endswith("this model has one latent vector of 576 a layer.")


def test_a_formula_that_is_right_by_chance_is_said_to_be() -> None:
    found = calculate(asked(model="qwen3-0.6b")).hidden_size_formula
    assert found is not None
    assert found.factor == 1.0
    assert "happens to say the same here, though this model's layers, heads and sizes" in found.message


def test_32_requests_of_8k_take_80_gib_on_a_70b() -> None:
    """One of the sources says 640 GB, another of its lines 160."""
    found = row("llama-3.1-70b", context_tokens=8192, concurrency=32)
    assert found.bytes_at_concurrency == 80 * GIB


def test_28000_tokens_of_a_llama_2_7b_take_14_68_gb() -> None:
    assert row("llama-2-7b", context_tokens=28_000).bytes_per_request == 14_680_064_000


def test_32k_on_an_h100_is_312_tokens_a_second_by_the_cache_alone_and_22_with_the_weights() -> None:
    alone = row("llama-3.1-70b", context_tokens=32_768, accelerator="h100", weights_bytes=0)
    assert alone.tokens_per_second.one_request == pytest.approx(3.35e12 / (10 * GIB))
    assert round(alone.tokens_per_second.one_request or 0) == 312
    larger: dict[str, Any] = {"memory_bytes": 200 * 10**9, "bandwidth_bytes_per_second": 3.35e12}
    whole = row("llama-3.1-70b", context_tokens=32_768, weights_bytes=140 * 10**9, **larger)
    assert whole.tokens_per_second.one_request == pytest.approx(22.2, abs=0.05)


def test_scales_and_chunks_count_in_four_million_tokens_of_scout() -> None:
    """196.6 GB at 4 bits and nothing else; 208.9 with the scales they need; 52.5 where only 12 layers grow."""
    found = row("llama-4-scout", "int4", context_tokens=4_000_000, respect_windows=False)
    assert found.bytes_per_request == 4_000_000 * 48 * 8 * 2 * 68 == 208_896_000_000
    assert row("llama-4-scout", "int4", context_tokens=4_000_000).bytes_per_request == (
        4_000_000 * 12 * 8 * 2 * 68 + 8192 * 36 * 8 * 2 * 68
    )
