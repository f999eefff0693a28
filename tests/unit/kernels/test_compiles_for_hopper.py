"""Every Triton kernel is compiled for sm_90 at head sizes 64 and 128: what an interpreter accepts, a compiler may not.

In `make test` each codec at one of the sizes, in `make test-kernels` every format at both.

No GPU takes part. The Hopper trap is a matrix instruction with an FP8 operand, which adds its products up at reduced
precision: needles in a long context are lost.
"""

from collections.abc import Sequence

import pytest

from kernels.aot import CompileCase, Compiled, compile_case, matrix_instructions
from kernels.dispatch import HAS_TRITON, IS_INTERPRETED
from kernels.errors import KernelError
from kernels.formats import KV_FORMATS
from tests.bench.gpu.compiled import ALL, OFFERED, Chosen, Outcome, cases_of, chosen_of, compiled_apart, outcome_of
from tests.kernels.matrix import is_full

PROCESSES = 2
OPS = ("fwht", "kv_write", "page_checksum", "page_convert", "page_copy", "page_zero", "paged_decode", "paged_prefill")
OF_BYTES = ("page_checksum", "page_copy", "page_zero")  # know no head size
SHARED_MOST = 227 * 1024  # bytes that a program may have on an H100 or H200
REGISTERS_MOST = 255
# Each codec once: plain, FP8 with 4 and with 5 bits of exponent, int8, int4, and nvfp4's groups.
REDUCED: Chosen = {64: ("bf16", "nvfp4"), 128: ("fp8", "k8v4")}


@pytest.fixture(scope="module")
def outcomes() -> Sequence[Outcome]:
    if not HAS_TRITON:
        pytest.skip("Triton is not installed here, so nothing can be compiled")
    return list(compiled_apart(PROCESSES, ALL if is_full() else REDUCED))


@pytest.fixture(scope="module")
def compiled(outcomes: Sequence[Outcome]) -> Sequence[Compiled]:
    return [outcome.compiled for outcome in outcomes if outcome.compiled]


def test_every_kernel_compiles(outcomes: Sequence[Outcome]) -> None:
    assert {outcome.name: outcome.error for outcome in outcomes if outcome.error} == {}
    assert {outcome.name.split()[0] for outcome in outcomes} == {*OPS}
    for size in ALL:
        with_size = {outcome.name.split()[0] for outcome in outcomes if f" {size}" in outcome.name}
        assert with_size == {op for op in OPS if op not in OF_BYTES}


def test_code_for_the_gpu_comes_out(compiled: Sequence[Compiled]) -> None:
    for one in compiled:
        assert one.ptx_bytes > 1_000, one
        assert one.cubin_bytes > 1_000, one


def test_no_kernel_spills_registers(compiled: Sequence[Compiled]) -> None:
    assert {one.name: one.spills_bytes for one in compiled if one.spills_bytes} == {}
    assert max(one.registers for one in compiled) <= REGISTERS_MOST


def test_every_kernel_fits_into_shared_memory(compiled: Sequence[Compiled]) -> None:
    assert {one.name: one.shared_bytes for one in compiled if one.shared_bytes > SHARED_MOST} == {}


def test_no_matrix_product_has_an_fp8_operand(compiled: Sequence[Compiled]) -> None:
    assert {one.name: one.fp8_operands for one in compiled if one.fp8_operands} == {}
    with_products = {one.name.split()[0] for one in compiled if one.matrix_instructions}
    assert with_products >= {"paged_decode", "paged_prefill"}  # the pattern finds what there is


def test_matrix_instructions_are_found_in_ptx_with_the_types_of_their_operands() -> None:
    ptx = """
        mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f1}, {%r2}, {%r3}, {%f4};
        wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, p, 1, 1, 0, 1;
        @%p1 wgmma.mma_async.sync.aligned.m64n64k32.f32.e5m2.e5m2 {%f1}, %rd1, %rd2, p, 1, 1;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, p, 1, 1, 0, 1;
        cvt.rn.f16x2.e4m3x2 %r1, %h1;  // mma.sync.e4m3 in a comment
    """
    found = matrix_instructions(ptx)
    assert found == (
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16",
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e5m2.e5m2",
    )
    assert len(Compiled("x", 1, 0, 0, 4, 1, 1, found).fp8_operands) == 2


def test_what_is_compiled_apart_comes_back_as_it_was() -> None:
    line = '{"name": "x", "compiled": {"name": "x", "registers": 1, "spills_bytes": 2, "shared_bytes": 3, "warps": 4, '
    line += '"ptx_bytes": 5, "cubin_bytes": 6, "matrix_instructions": ["mma"]}, "error": ""}'
    assert outcome_of(line) == Outcome("x", Compiled("x", 1, 2, 3, 4, 5, 6, ("mma",)))
    assert outcome_of('{"name": "x", "compiled": null, "error": "no"}') == Outcome("x", None, "no")


@pytest.mark.skipif(not IS_INTERPRETED, reason="kernels are compiled here, not interpreted")
def test_where_kernels_are_interpreted_compiling_says_so() -> None:
    with pytest.raises(KernelError, match="its interpreter is on: unset TRITON_INTERPRET"):
        compile_case(CompileCase("x", None, {}, {}))


def test_what_is_compiled_is_chosen_by_head_size_and_format() -> None:
    assert {64, 128} == {*ALL}
    assert all({*formats} == {*OFFERED} for formats in ALL.values())
    assert chosen_of(["128:bf16,int4", "64:fp8"]) == {128: ["bf16", "int4"], 64: ["fp8"]}
    names = [case.name for case in cases_of({64: ["bf16"], 128: ["bf16"]})]
    assert len(names) == len({*names})
    assert names.count("page_copy") == 1


def test_reduced_choice_has_every_codec_and_size() -> None:
    def codecs(chosen: Chosen) -> set[str]:
        formats = [KV_FORMATS[name] for names in chosen.values() for name in names]
        return {vector.name for one in formats for vector in (one.key, one.value)}

    assert codecs(REDUCED) == codecs(ALL)
    assert {*REDUCED} == {*ALL}
