"""What fits, how fast at most, what is shared, and what cannot be."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.calculator.accelerators import ACCELERATORS, Accelerator
from kernels.calculator.answer import Answer, FormatRow
from kernels.calculator.asked import ALL_FORMATS, asked, document
from kernels.calculator.calculating import calculate
from kernels.calculator.question import Question
from kernels.errors import InvalidArgument
from kernels.formats import KV_FORMATS
from kernels.layout import PageLayout
from kernels.models.presets import PRESETS, preset_shape
from kernels.shapes import Layers, ModelShape, Parameters

GB = 10**9


def answer(**words: Any) -> Answer:
    return calculate(asked(**{"model": "llama-3.1-70b", **words}))


def row(**words: Any) -> FormatRow:
    return answer(**{"kv_dtypes": ["bf16"], **words}).rows[0]


def refusal(**words: Any) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        answer(**words)
    return caught.value


def test_a_token_takes_what_our_own_pages_give_it() -> None:
    for name, kv_format in KV_FORMATS.items():
        layout = PageLayout(kv_format, layers=80, kv_heads=8, head_size=128)
        assert row(kv_dtypes=[name]).bytes_per_token == layout.token_bytes


@pytest.mark.parametrize(("gpus", "heads"), [(1, 8), (2, 4), (3, 3), (4, 2), (8, 1), (16, 1), (64, 1)])
def test_each_gpu_holds_its_share_of_the_heads_and_never_less_than_one(gpus: int, heads: int) -> None:
    found = row(tensor_parallel=gpus)
    assert found.bytes_per_token_per_gpu == 2 * 80 * heads * 128 * 2
    assert found.bytes_per_token == 2 * 80 * 8 * 128 * 2


def test_a_latent_vector_is_on_every_gpu() -> None:
    found = row(model="deepseek-v3", tensor_parallel=8)
    assert found.bytes_per_token_per_gpu == found.bytes_per_token == 70_272
    assert any("every GPU holds a copy" in note for note in answer(model="deepseek-v3", tensor_parallel=8).notes)


def test_copies_and_uneven_shares_are_said() -> None:
    assert any("some hold copies" in note for note in answer(tensor_parallel=16).notes)
    assert any("the fullest holds 3" in note for note in answer(tensor_parallel=3).notes)
    assert answer(tensor_parallel=8).notes == ()


@pytest.mark.parametrize(
    ("context", "kept"), [(1, 16), (16, 16), (17, 32), (4080, 4080), (4090, 4096), (4096, 4096), (32_768, 4096)]
)
def test_a_window_stops_growing_at_its_end_in_whole_blocks(context: int, kept: int) -> None:
    assert row(model="mistral-7b-v0.1", context_tokens=context).bytes_per_request == kept * 131_072


def test_a_window_that_fills_no_block_is_rounded_up() -> None:
    shape = replace(
        preset_shape("mistral-7b-v0.1"), layers=(Layers("window", 32, 32, 8, 128, 128, window_tokens=2047),)
    )
    found = calculate(Question(shape, (KV_FORMATS["bf16"],), context_tokens=9000)).rows[0]
    assert found.bytes_per_request == 2048 * 131_072


def test_chunks_stop_growing_and_the_other_layers_go_on() -> None:
    found = row(model="llama-4-scout", context_tokens=131_072)
    full, chunked = 131_072 * 12 * 4096, 8192 * 36 * 4096
    assert found.bytes_per_request == full + chunked
    assert {one.kind: one.bytes_per_request for one in found.layer_kinds} == {"full": full, "chunked": chunked}


def test_windows_can_be_taken_as_if_every_token_were_kept() -> None:
    kept = row(model="mistral-7b-v0.1", context_tokens=32_768, respect_windows=False)
    assert kept.bytes_per_request == 32_768 * 131_072


def test_what_fits_is_the_pool_in_whole_blocks() -> None:
    found = answer(accelerator="h200", tensor_parallel=8, context_tokens=131_072, kv_dtypes=["bf16", "int4"])
    machine = found.machine
    assert machine is not None
    assert machine.usable_bytes == 129_720_000_000
    assert machine.weights_bytes == 70_553_706_496 * 2 // 8 == 17_638_426_624
    assert machine.pool_bytes == 129_720_000_000 - 17_638_426_624 - 2**30
    plain, small = found.rows
    assert plain.tokens_that_fit == machine.pool_bytes // (16 * 40_960) * 16 == 2_710_144
    assert (plain.requests_that_fit, small.requests_that_fit) == (20, 77)


def test_requests_fit_to_the_byte() -> None:
    one = row(context_tokens=1000).bytes_per_request
    assert one == 63 * 16 * 327_680
    machine = {"bandwidth_bytes_per_second": 1e12, "memory_utilisation": 1.0, "reserve_bytes": 0, "weights_bytes": 7}
    for memory, fitting in ((7 + 3 * one, 3), (7 + 3 * one - 1, 2), (7 + one - 1, 0)):
        found = row(context_tokens=1000, concurrency=3, memory_bytes=memory, **machine)
        assert (found.requests_that_fit, found.concurrency_fits) == (fitting, fitting == 3)
    assert found.tokens_per_second.full_pool is found.tokens_per_second.one_request is None


def test_a_shared_prefix_is_held_once_and_only_in_whole_blocks() -> None:
    found = row(context_tokens=1000, shared_prefix_tokens=100, concurrency=10)
    assert found.bytes_at_concurrency == (6 + 10 * (63 - 6)) * 16 * 327_680
    assert row(context_tokens=1000, concurrency=10).bytes_at_concurrency == 630 * 16 * 327_680
    assert row(context_tokens=1000, shared_prefix_tokens=15, concurrency=10).bytes_at_concurrency == 630 * 16 * 327_680


def test_the_shared_prefix_takes_its_room_before_requests_do() -> None:
    block = 16 * 327_680
    words = {"context_tokens": 1600, "shared_prefix_tokens": 800, "bandwidth_bytes_per_second": 1e12}
    machine = {"memory_utilisation": 1.0, "reserve_bytes": 0, "weights_bytes": 0}
    for blocks, fitting in ((50 + 3 * 50, 3), (50 + 3 * 50 - 1, 2), (50, 0), (49, 0)):
        assert row(memory_bytes=blocks * block, **words, **machine).requests_that_fit == fitting


def test_a_whole_shared_context_costs_no_request_anything() -> None:
    found = row(context_tokens=1600, shared_prefix_tokens=1600, concurrency=9, accelerator="h200", tensor_parallel=2)
    assert found.bytes_at_concurrency == 1600 * 327_680
    assert (found.requests_that_fit, found.tokens_per_second.full_pool) == (None, None)
    assert found.concurrency_fits


def test_of_a_shared_prefix_a_window_keeps_its_own_end() -> None:
    words = {"model": "mistral-7b-v0.1", "context_tokens": 32_768, "concurrency": 10}
    assert row(shared_prefix_tokens=16_384, **words).bytes_at_concurrency == (4096 + 10 * 4096) * 131_072
    assert row(shared_prefix_tokens=32_768, **words).bytes_at_concurrency == 4096 * 131_072
    assert row(shared_prefix_tokens=31_768, **words).bytes_at_concurrency == (4096 + 10 * 1008) * 131_072


def test_the_bound_is_bandwidth_over_weights_and_the_cache_of_all_requests() -> None:
    found = answer(accelerator="h200", tensor_parallel=4, context_tokens=10_000, concurrency=12, kv_dtypes=["fp8"])
    assert found.machine is not None
    each = 10_000 * 80 * 2 * 2 * 128
    rates = found.rows[0].tokens_per_second
    assert rates.one_request == pytest.approx(4.8e12 / (found.machine.weights_bytes + each))
    assert rates.at_concurrency == pytest.approx(12 * 4.8e12 / (found.machine.weights_bytes + 12 * each))


def test_of_experts_one_token_reads_the_active_ones_and_many_tokens_most() -> None:
    words = {"model": "deepseek-v3", "accelerator": "h200", "tensor_parallel": 8, "context_tokens": 16}
    one = row(**words).tokens_per_second.one_request
    assert one == pytest.approx(4.8e12 / (37e9 / 8 + 16 * 70_272), rel=1e-6)
    many = row(**words, concurrency=20_000).tokens_per_second.at_concurrency
    assert many == pytest.approx(20_000 * 4.8e12 / (671e9 / 8 + 20_000 * 16 * 70_272), rel=1e-3)


def test_weights_that_do_not_fit_are_refused_with_both_numbers_and_what_would_do() -> None:
    found = refusal(accelerator="h100")
    assert found.argument == "tensor_parallel"
    assert "141,107,412,992 bytes of weights" in str(found)
    assert "72,526,258,176 bytes there for them" in str(found)
    assert str(found).endswith("the smallest number that would do is 2")
    assert answer(accelerator="h100", tensor_parallel=2).machine is not None


def test_weights_that_fit_on_no_number_of_gpus_are_said_to() -> None:
    assert str(refusal(accelerator="h100", reserve_bytes=80 * GB)).endswith("no number of them would do")
    tiny = {"memory_bytes": 10**9, "bandwidth_bytes_per_second": 1e12, "reserve_bytes": 0}
    assert str(refusal(**tiny)).endswith("no number of them would do")


def test_the_smallest_number_that_would_do_does_and_one_less_does_not() -> None:
    words = {"model": "llama-3.1-405b", "accelerator": "h100"}
    said = str(refusal(**words))
    assert said.endswith("the smallest number that would do is 12 (16 to share 128 heads evenly)")
    least = 12
    assert answer(**words, tensor_parallel=least).machine is not None
    assert refusal(**words, tensor_parallel=least - 1).argument == "tensor_parallel"


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("fp32", 32_121_044_992), ("bf16", 16_060_522_496), ("fp8", 8_030_261_248), ("int4", 4_140_603_456)],
)
def test_weights_take_what_their_dtype_does(dtype: str, expected: int) -> None:
    found = answer(model="llama-3-8b", accelerator="h200", weights_dtype=dtype).machine
    assert found is not None
    assert (found.weights_bytes, found.weights_dtype) == (expected, dtype)


def test_the_newest_tokens_that_kivi_keeps_in_bf16_count_in_what_fits() -> None:
    found = row(kv_dtypes=["kivi2"], context_tokens=1600)
    assert found.residual_bytes_per_request == 128 * (327_680 - 61_440)
    assert found.bytes_at_concurrency == found.bytes_per_request + found.residual_bytes_per_request
    assert row(kv_dtypes=["kivi2"], context_tokens=64).residual_bytes_per_request == 64 * (327_680 - 61_440)


def test_a_format_whose_groups_a_vector_does_not_fill_is_left_out_or_refused() -> None:
    config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 320}
    found = calculate(asked(config=config, kv_dtypes=["all"]))  # head size 80 is 5 groups of 16, not of 32
    assert {one.kv_dtype for one in found.rows} == set(ALL_FORMATS) - {"int4_g32", "mxfp4", "kivi2"}
    assert any("int4_g32, mxfp4, kivi2: left out" in note for note in found.notes)
    with pytest.raises(InvalidArgument, match="kv_dtypes"):
        calculate(asked(config=config, kv_dtypes=["mxfp4"]))


def test_a_context_beyond_what_the_model_was_made_for_is_counted_and_said() -> None:
    found = answer(model="llama-3-8b", context_tokens=32_768)
    assert found.rows[0].bytes_per_request == 4 * 2**30
    assert any("made for 8,192 tokens" in note for note in found.notes)
    assert answer(model="llama-2-7b").context_tokens == 4096
    assert answer(model="llama-3.1-8b").context_tokens == 8192


def test_every_accelerator_has_the_memory_and_bandwidth_of_its_sheet() -> None:
    found = {name: (one.memory_bytes / GB, one.bandwidth_bytes_per_second / GB) for name, one in ACCELERATORS.items()}
    assert found == {
        "a100": (80, 2039),
        "b200": (180, 8000),
        "b300": (288, 8000),
        "h100": (80, 3350),
        "h200": (141, 4800),
        "l40s": (48, 864),
        "mi300x": (192, 5300),
        "rtx-4090": (24, 1008),
    }


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "no model": ({"model": None}, "model"),
    "model and config": ({"config": {}}, "model"),
    "an unknown model": ({"model": "llama-9"}, "model"),
    "a model that is a list": ({"model": ["llama-3-8b"]}, "model"),
    "no format": ({"kv_dtypes": []}, "kv_dtypes"),
    "an unknown format": ({"kv_dtypes": ["bf16", "fp6"]}, "kv_dtypes.1"),
    "all beside others": ({"kv_dtypes": ["all", "bf16"]}, "kv_dtypes.0"),
    "a format that is a number": ({"kv_dtypes": [4]}, "kv_dtypes.0"),
    "no context": ({"context_tokens": 0}, "context_tokens"),
    "a negative context": ({"context_tokens": -1}, "context_tokens"),
    "an absurd context": ({"context_tokens": 10**12}, "context_tokens"),
    "half a token": ({"context_tokens": 0.5}, "context_tokens"),
    "a true context": ({"context_tokens": True}, "context_tokens"),
    "a context in words": ({"context_tokens": "8192"}, "context_tokens"),
    "NaN tokens": ({"context_tokens": float("nan")}, "context_tokens"),
    "a prefix longer than the context": ({"context_tokens": 10, "shared_prefix_tokens": 11}, "shared_prefix_tokens"),
    "no request": ({"concurrency": 0}, "concurrency"),
    "no GPU": ({"tensor_parallel": 0}, "tensor_parallel"),
    "more GPUs than query heads": ({"tensor_parallel": 65}, "tensor_parallel"),
    "an unknown accelerator": ({"accelerator": "tpu"}, "accelerator"),
    "an accelerator and another": ({"accelerator": "h200", "memory_bytes": 1}, "accelerator"),
    "memory alone": ({"memory_bytes": 10**12}, "bandwidth_bytes_per_second"),
    "bandwidth alone": ({"bandwidth_bytes_per_second": 1.0}, "memory_bytes"),
    "no bandwidth": ({"memory_bytes": 1, "bandwidth_bytes_per_second": 0}, "bandwidth_bytes_per_second"),
    "NaN bandwidth": ({"memory_bytes": 1, "bandwidth_bytes_per_second": float("nan")}, "bandwidth_bytes_per_second"),
    "infinite bandwidth": (
        {"memory_bytes": 1, "bandwidth_bytes_per_second": float("inf")},
        "bandwidth_bytes_per_second",
    ),
    "negative memory": ({"memory_bytes": -1, "bandwidth_bytes_per_second": 1.0}, "memory_bytes"),
    "more than all memory": ({"memory_utilisation": 1.01}, "memory_utilisation"),
    "none of the memory": ({"memory_utilisation": 0.0}, "memory_utilisation"),
    "NaN of the memory": ({"memory_utilisation": float("nan")}, "memory_utilisation"),
    "a negative reserve": ({"reserve_bytes": -1}, "reserve_bytes"),
    "an unknown dtype of weights": ({"weights_dtype": "int3"}, "weights_dtype"),
    "negative weights": ({"weights_bytes": -1}, "weights_bytes"),
    "no parameters": ({"parameters": 0}, "parameters"),
    "more active parameters than there are": ({"parameters": 5, "active_parameters": 6}, "active_parameters"),
    "parameters beyond any model": ({"parameters": 10**30}, "parameters"),
}


@pytest.mark.parametrize("words", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_is_refused_by_its_field(words: tuple[dict[str, Any], str]) -> None:
    given, field = words
    assert refusal(**given).argument == field


def test_parameters_that_are_not_known_are_asked_for() -> None:
    config = {"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768}
    with pytest.raises(InvalidArgument, match="parameters: null is not there"):
        calculate(asked(config=config, accelerator="l40s"))
    found = calculate(asked(config=config, accelerator="l40s", parameters=124_439_808)).machine
    assert found is not None
    assert found.weights_bytes == 2 * 124_439_808


def test_given_parameters_take_the_place_of_the_known() -> None:
    question = asked(model="deepseek-v3", parameters=100 * GB, active_parameters=10 * GB)
    assert question.shape.parameters == Parameters(100 * GB, 10 * GB, "given", 256, 8)
    assert asked(model="llama-3-8b", active_parameters=5 * GB).shape.parameters == Parameters(
        8_030_261_248, 5 * GB, "given"
    )


def test_many_kinds_of_layers_do_not_swell_the_answer() -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 4096, "hidden_size": 64, "head_dim": 128,
        "num_attention_heads": [2 * (at % 64 + 1) for at in range(4096)], "num_key_value_heads": [1] * 4096,
    }  # fmt: skip
    question = asked(config=config, kv_dtypes=["all"])
    assert len(question.shape.layers) == 64
    assert len(json.dumps(document(question.shape, calculate(question)))) < 200_000


def test_the_document_is_json_and_says_the_same() -> None:
    question = asked(model="llama-4-scout", kv_dtypes=["all"], accelerator="h200", tensor_parallel=4)
    found = document(question.shape, calculate(question))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["model"]["layers"][0]["window_tokens"] == 8192


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(PRESETS)),
    st.sampled_from(sorted(ALL_FORMATS)),
    st.integers(1, 300_000),
    st.integers(1, 40),
    st.integers(0, 300_000),
    st.sampled_from([4, 7, 8]),
)
def test_what_is_said_agrees_with_itself(
    model: str, kv_dtype: str, context: int, concurrency: int, prefix: int, gpus: int
) -> None:
    found = row(
        model=model,
        kv_dtypes=[kv_dtype],
        context_tokens=context,
        concurrency=concurrency,
        shared_prefix_tokens=min(prefix, context),
        tensor_parallel=gpus,
        memory_bytes=2 * 10**12,
        bandwidth_bytes_per_second=1e12,
    )
    assert sum(one.bytes_per_request for one in found.layer_kinds) == found.bytes_per_request
    assert sum(one.bytes_per_token for one in found.layer_kinds) == found.bytes_per_token
    assert found.bytes_per_token <= gpus * found.bytes_per_token_per_gpu
    assert found.bytes_per_request <= found.bytes_per_token * (context + 15)
    assert found.bytes_at_concurrency <= concurrency * (found.bytes_per_request + found.residual_bytes_per_request) + (
        min(prefix, context)
        * found.bytes_per_token  # a window's end of the prefix is kept beside what each request has
    )
    if found.requests_that_fit is not None:
        assert found.concurrency_fits is (concurrency <= found.requests_that_fit)


def test_a_model_without_attention_holds_the_same_at_any_length() -> None:
    shape = ModelShape("m", (Layers("state", 4, state_bytes=1000),), "test")
    accelerator = Accelerator("one", 10**6, 1e9)
    for context in (1, 10**6):
        question = Question(
            shape, (KV_FORMATS["bf16"],), context_tokens=context, accelerator=accelerator, weights_bytes=0,
            reserve_bytes=0, memory_utilisation=1.0, tensor_parallel=3,
        )  # fmt: skip
        found = calculate(question).rows[0]
        assert (found.bytes_per_token, found.bytes_per_request, found.bytes_per_request_per_gpu) == (0, 4000, 4 * 334)
        assert (found.tokens_that_fit, found.requests_that_fit) == (None, 748)
