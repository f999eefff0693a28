"""Bytes of vectors, pages and tokens."""

import subprocess
import sys
from itertools import pairwise, product
from typing import get_args

import pytest

from kernels.errors import InvalidArgument
from kernels.formats import KV_FORMATS, kv_format_named
from kernels.layout import PageLayout
from tenants.policy import KvDtype
from tests.unit.kernels.making import make_layout


@pytest.mark.parametrize(
    ("kv_format", "key_bytes", "value_bytes"),
    [
        ("fp32", 512, 512),
        ("bf16", 256, 256),
        ("fp8", 128, 128),
        ("fp8_e4m3", 128, 128),
        ("fp8_e5m2", 128, 128),
        ("int8", 132, 132),
        ("k8v4", 132, 68),
        ("int4", 68, 68),
        ("nvfp4", 72, 72),
        ("int2", 36, 36),
    ],
)
def test_a_vector_of_128_numbers_costs_what_its_codes_and_scales_cost(
    kv_format: str, key_bytes: int, value_bytes: int
) -> None:
    layout = make_layout(kv_format, layers=1, kv_heads=1, head_size=128)

    assert layout.kv_format.key.vector_bytes(128) == key_bytes
    assert layout.kv_format.value.vector_bytes(128) == value_bytes
    assert layout.token_bytes == key_bytes + value_bytes


@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_a_page_is_the_bytes_of_its_vectors_and_not_one_more(kv_format: str, subtests: pytest.Subtests) -> None:
    for head_size, kv_heads in product([16, 32, 64, 80, 96, 112, 128, 192, 256], [1, 2, 3, 8]):
        with subtests.test(head_size=head_size, kv_heads=kv_heads):
            layout = make_layout(kv_format, layers=3, kv_heads=kv_heads, head_size=head_size)
            assert layout.page_bytes == 3 * kv_heads * 16 * layout.kv_format.token_bytes(head_size)


@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_every_section_is_aligned_to_16_bytes_and_in_order(kv_format: str, subtests: pytest.Subtests) -> None:
    for head_size in (16, 64, 80, 96, 128):
        with subtests.test(head_size=head_size):
            layout = make_layout(kv_format, kv_heads=3, head_size=head_size)
            begins = [0, layout.key_scales_at, layout.value_codes_at, layout.value_scales_at, layout.layer_bytes]
            assert all(begin % 16 == 0 for begin in begins)
            assert all(begin <= following for begin, following in pairwise(begins))


def test_what_is_offered_is_what_a_policy_may_name() -> None:
    offered = {name for name, kv_format in KV_FORMATS.items() if kv_format.is_offered}

    assert offered == set(get_args(KvDtype)) == set(KV_FORMATS) - {"fp32", "int2"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", 0),
        ("kv_heads", -1),
        ("head_size", 40),
        ("head_size", 0),
        ("head_size", 272),
        ("block_tokens", 8),
        ("block_tokens", 48),
        ("layers", True),
        ("kv_heads", 2.0),
    ],
)
def test_an_impossible_layout_is_refused_by_field(field: str, value: int) -> None:
    fields = {"layers": 2, "kv_heads": 2, "head_size": 64, "block_tokens": 16} | {field: value}

    with pytest.raises(InvalidArgument, match=rf"^{field}: "):
        PageLayout(kv_format_named("int8"), **fields)


@pytest.mark.parametrize("name", ["fp16", "", "INT8", None, ["int8"]])
def test_an_unknown_format_is_refused_with_the_names_there_are(name: str) -> None:
    with pytest.raises(InvalidArgument, match="one of fp32, bf16"):
        kv_format_named(name)


def test_the_layout_needs_nothing_but_the_standard_library() -> None:
    script = "import sys, kernels.layout; print([m for m in ('torch', 'triton', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
