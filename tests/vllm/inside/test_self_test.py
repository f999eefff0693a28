"""What a format costs in vLLM's own attention, and that one which vLLM takes and does not compute is dropped."""

import json
import subprocess
import sys
from collections.abc import Iterable
from functools import cache

import pytest
import torch

from engine_agent.backends.vllm.formats import FORMATS, UnservedFormat, names_of
from engine_agent.backends.vllm.self_test import check_attention, limit_of, reference
from engine_agent.engine.errors import EngineFailed

COMPUTED = {"auto": "bf16", "bfloat16": "bf16", "fp8": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2"}
GARBAGE = {"int8_per_token_head": "int8", "int4_per_token_head": "int4", "nvfp4": "nvfp4"}
MOST_SECONDS = 5.0


@cache
def told(*formats: str) -> dict[str, tuple[float, float] | str]:
    command = [sys.executable, "-m", "tests.vllm.inside.attending", *formats]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found: dict[str, tuple[float, float] | str] = {}
    for line in said.stdout.splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    assert found.keys() == {*formats}, said.stderr
    return found


def measured(kv_cache_dtype: str, formats: Iterable[str]) -> tuple[float, float]:
    found = told(*formats)[kv_cache_dtype]
    if isinstance(found, str):
        pytest.skip(f"vLLM itself refuses it on this processor: {found}")
    return found


@pytest.mark.parametrize(("kv_cache_dtype", "computed"), COMPUTED.items())
def test_what_vllm_computes_passes_in_no_time(kv_cache_dtype: str, computed: str) -> None:
    error, seconds = measured(kv_cache_dtype, COMPUTED)
    check_attention(computed, error)
    assert error > 0
    assert seconds < MOST_SECONDS


@pytest.mark.parametrize(("kv_cache_dtype", "computed"), GARBAGE.items())
def test_what_vllm_takes_and_does_not_compute_is_dropped_with_both_numbers(kv_cache_dtype: str, computed: str) -> None:
    error, _ = measured(kv_cache_dtype, GARBAGE)
    with pytest.raises(EngineFailed) as refused:
        check_attention(computed, error)
    assert str(refused.value) == (
        f"{computed}: this vLLM's attention is off by {error:.0%}, "
        f"and rounding explains {limit_of(computed):.0%} at most: "
        "it does not compute the format. Start it with another --kv-dtype, such as bf16"
    )


def test_an_error_that_is_no_number_is_none_that_passes() -> None:
    for error in (float("nan"), float("inf")):
        with pytest.raises(EngineFailed):
            check_attention("bf16", error)


def test_the_reference_is_what_torch_computes() -> None:
    query, key, value = (torch.randn(37, heads, 32) for heads in (6, 2, 2))
    heads_first = [one.transpose(0, 1) for one in (query, key, value)]
    wanted = torch.nn.functional.scaled_dot_product_attention(
        heads_first[0], heads_first[1], heads_first[2], is_causal=True, scale=0.2, enable_gqa=True
    )
    torch.testing.assert_close(reference(query, key, value, 0.2), wanted.transpose(0, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kv_cache_dtype", GARBAGE)
def test_where_no_worker_of_ours_would_test_it_a_format_is_refused_by_name(kv_cache_dtype: str) -> None:
    assert kv_cache_dtype not in FORMATS
    with pytest.raises(UnservedFormat):
        names_of(kv_cache_dtype, "bfloat16")
    assert names_of(kv_cache_dtype, "bfloat16", is_tested=True) == (GARBAGE[kv_cache_dtype],)
