"""E4 and K1: what is counted, what both sides of a comparison compute, and what the rows keep."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.formats import KV_FORMATS
from tests.bench.kernel_inputs import Shape, paged, scattered, vectors
from tests.bench.kernel_worker import Kernels, sides
from tests.bench.measuring import Bench
from tests.bench.pool_tokens import layout_of, tokens_that_fit
from tests.bench.registry import REGISTRY
from tests.bench.rows import kernels
from tests.bench.rows.kernels import CALLS_MOST, SPEEDS, Speed, calls_for
from tests.bench.running import run_row
from tests.support.torch_threads import one_thread as one_thread

CPU = torch.device("cpu")
ROW = {row.key: row for row in REGISTRY.rows()}
SMALL = Shape(heads=4, kv_heads=2, head_size=32, rows=2, context=40)


# --- counting ---------------------------------------------------------------------------------------------------------


def test_bytes_of_a_step_are_those_of_every_key_and_value_with_their_scales() -> None:
    shape = Shape(32, 8, 128, 32, 16_384)
    assert shape.kv_bytes(KV_FORMATS["bf16"]) == 32 * 16_384 * 8 * 128 * 2 * 2 == 2**31
    assert shape.kv_bytes(KV_FORMATS["int4"]) == 32 * 16_384 * 8 * 2 * (64 + 4)
    assert shape.kv_bytes(KV_FORMATS["nvfp4"]) == 32 * 16_384 * 8 * 2 * (64 + 8)
    assert shape.pages() * shape.layout(KV_FORMATS["k8v4"]).page_bytes == shape.kv_bytes(KV_FORMATS["k8v4"])


def test_a_causal_query_sees_itself_and_what_was_before() -> None:
    assert Shape(1, 1, 16, 1, 4, 4).seen() == 1 + 2 + 3 + 4
    assert Shape(1, 1, 16, 3, 10, 2).seen() == 3 * (9 + 10)
    assert Shape(1, 1, 16, 5, 10).seen() == 50
    assert Shape(32, 8, 128, 1, 4_096, 4_096).flops() == 4 * 32 * 128 * 4_096 * 4_097 // 2


def test_shapes_say_their_sizes() -> None:
    assert str(Shape(32, 8, 128, 32, 16_384)) == "32/8 heads of 128, 32 × 16,384"
    assert str(Shape(8, 2, 64, 1, 2_048, 512)) == "8/2 heads of 64, 1 × 512 new of 2,048"


def test_every_page_is_some_rows_and_none_is_two() -> None:
    layout = SMALL.layout(KV_FORMATS["int8"])
    first, second = scattered(layout, 2, 3)
    assert sorted(first + second) == [page * layout.page_bytes for page in range(6)]
    assert first + second != sorted(first + second)


def test_pages_hold_the_very_keys_and_values_that_contiguous_attention_is_given() -> None:
    given = vectors(SMALL, CPU, torch.float32)
    inputs = paged(SMALL, KV_FORMATS["fp32"], given)
    page, slot, head = 2, 7, 1
    begin = int(inputs.table.pages[1, page]) + (head * 16 + slot) * 32 * 4
    key = inputs.arena[begin : begin + 32 * 4].view(torch.float32)
    assert torch.equal(key, given.keys[1, head, page * 16 + slot])
    assert inputs.q.shape == (2, 4, 32)


# --- E4 ---------------------------------------------------------------------------------------------------------------


def test_a_pool_is_filled_to_its_last_page() -> None:
    page = layout_of("bf16").page_bytes
    fitting = tokens_that_fit("bf16", 3_000 * page)
    assert 0.99 * 3_000 * 16 < fitting <= 3_000 * 16


def test_e4_is_met_and_its_figures_are_ratios_to_bf16() -> None:
    result = run_row(ROW["E4"])
    assert result.error is None
    judged = {figure.name: figure for figure in result.figures if figure.target}
    assert set(judged) == {"fp8 ÷ bf16", "int4 ÷ bf16"}
    assert [figure.is_met for figure in judged.values()] == [True, True]
    assert judged["fp8 ÷ bf16"].ours.statistics.min == pytest.approx(2, rel=0.01)
    assert judged["int4 ÷ bf16"].ours.statistics.max == pytest.approx(256 / 68, rel=0.01)


# --- K1 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [1, 5, 40])
def test_both_sides_of_a_comparison_compute_the_same_attention(new: int) -> None:
    shape = Shape(4, 2, 32, 1, 40, new)
    both = sides("paged_decode" if new == 1 else "paged_prefill", "fp32", shape)
    ours: Any = both["ours"]()
    theirs: Any = both["theirs"]()
    contiguous: Tensor = theirs.view(1, 4, new, 32).transpose(1, 2).reshape(new, 4, 32)
    assert torch.allclose(ours[0], contiguous, atol=1e-5)


def test_writing_is_compared_with_a_copy_of_the_same_tokens() -> None:
    both = sides("kv_write", "int8", Shape(4, 2, 32, 1, 40, 8))
    both["theirs"]()
    refused: Any = both["ours"]()
    assert refused.tolist() == [0] * 8


def test_the_worker_answers_with_a_time_and_keeps_what_it_prepared() -> None:
    worker = Kernels()
    question = {"op": "paged_decode", "format": "int8", "side": "ours", "calls": 3}
    shape = {"heads": 4, "kv_heads": 2, "head_size": 32, "rows": 1, "context": 40, "new": 1}
    assert worker.answer({**question, "shape": shape})["µs"] > 0
    before = worker._sides
    assert worker.answer({**question, "shape": shape, "side": "theirs"})["µs"] > 0
    assert worker._sides is before


def test_samples_are_long_enough_and_their_median_is_one_of_their_calls() -> None:
    assert calls_for(30_000.0) == 1
    assert calls_for(1_000_000.0) == 1
    assert calls_for(3_000.0) == 11
    assert calls_for(1.0) == CALLS_MOST | 1


def test_k1_asks_for_every_format_at_every_shape_and_for_some_with_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    started: list[str] = []

    class Running:
        def __init__(self, command: object, environment: Mapping[str, str]) -> None:
            started.append(environment["OMP_NUM_THREADS"])

        def __enter__(self) -> SimpleNamespace:
            return SimpleNamespace(ask=self.ask)

        def __exit__(self, *_: object) -> None: ...

        def ask(self, **question: Any) -> dict[str, float]:
            asked.append(question)
            return {"µs": 12_000.0 if question["side"] == "ours" else 6_000.0}

    monkeypatch.setattr(kernels, "worker_running", Running)
    result = run_row(ROW["K1"], repetitions=2)
    assert result.error is None
    assert started == ["1", "2"]
    assert len(result.figures) == 8 * 6 + 6 * 3
    assert {figure.judged_value for figure in result.figures} == {2.0}
    assert {question["calls"] for question in asked} == {1, 3, 5}  # the warm-up, ours, theirs
    assert asked[0]["shape"] == {"heads": 8, "kv_heads": 2, "head_size": 64, "rows": 1, "context": 512, "new": 1}


def test_speeds_are_told_apart_by_their_names() -> None:
    assert str(Speed("paged_prefill", 8, 2, rows=1, context=2048, new=512)) == "paged_prefill 8/2, 512 of 2,048"
    assert len({str(speed) for speed in SPEEDS}) == len(SPEEDS)


# --- the harness ------------------------------------------------------------------------------------------------------


def test_a_row_that_loops_itself_can_say_where_it_is() -> None:
    said: list[tuple[str, str, int, int]] = []
    Bench("X1", on_step=lambda *step: said.append(step)).step("decode", 3, 20)
    assert said == [("X1", "decode", 3, 20)]
