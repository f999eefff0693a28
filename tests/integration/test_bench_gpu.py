"""`make bench-gpu` where there is no GPU: its arithmetic, its order, what fails it, and a dry run of its rows."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernels.aot import Compiled
from kernels.dispatch import using
from kernels.formats import KV_FORMATS
from tests.bench.figures import Target
from tests.bench.gpu import __main__ as command
from tests.bench.gpu import checks
from tests.bench.gpu.check_log import UnitOutcome, log_open, subject_of
from tests.bench.gpu.check_running import CHECKER, processes_for, units_checked
from tests.bench.gpu.checks import Check, Unit, check_units, relative_error, share_that_differs
from tests.bench.gpu.clocks import alternating
from tests.bench.gpu.compiled import Outcome
from tests.bench.gpu.figures import h1_target, shares, terabytes_a_second, teraflops
from tests.bench.gpu.registry import GPU
from tests.bench.gpu.rows import attention, building, checking, moving, serving  # noqa: F401  # registers its rows
from tests.bench.gpu.setting import REAL, TINY, choose, dry_setting, fitted
from tests.bench.kernel_inputs import Shape
from tests.bench.results import RowResult
from tests.bench.running import run_row

ROW = {row.key: row for row in GPU.rows()}
EIGHT_B = Shape(32, 8, 128, 32, 16_384)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def test_milliseconds_become_terabytes_and_teraflops_a_second() -> None:
    assert terabytes_a_second(2**31, [0.5, 1.0]) == pytest.approx([4.294967296, 2.147483648])
    assert teraflops(10**12, [2.0]) == [500.0]
    assert shares([1.0, 3.0], [2.0, 4.0]) == [0.5, 0.75]


def test_what_an_h200_should_reach_is_asked_of_an_h200_alone() -> None:
    assert h1_target("NVIDIA H200", "bf16", 32, 16_384) == Target(">=", 3.8)
    assert h1_target("NVIDIA H200", "int4", 32, 16_384) == Target(">=", 2.0)
    assert h1_target("NVIDIA H200", "nvfp4", 32, 16_384) is None
    assert h1_target("NVIDIA H200", "bf16", 1, 4_096) is None
    assert h1_target("NVIDIA A100-SXM4-80GB", "bf16", 32, 16_384) is None
    assert h1_target(None, "bf16", 32, 16_384) is None


def test_where_memory_is_short_fewer_rows_are_measured() -> None:
    a_row = 3 * EIGHT_B.kv_bytes(KV_FORMATS["bf16"]) // 32
    assert fitted(EIGHT_B, a_row, 140 * 10**9) == EIGHT_B
    assert fitted(EIGHT_B, a_row, 4 * 10**9) == replace(EIGHT_B, rows=16)
    assert fitted(EIGHT_B, a_row, 0) == replace(EIGHT_B, rows=1)


def test_rows_h1_and_h2_are_of_the_shapes_that_numbers_speak_of() -> None:
    assert REAL.decoding[0] == EIGHT_B
    assert {shape.context for shape in REAL.prefilling} == {4_096, 16_384}
    assert {group for _, group in REAL.check_heads} == {4, 8}
    assert {*REAL.head_sizes} == {64, 128}
    assert {"bf16", "fp8", "int8", "int4", "k8v4", "nvfp4"} == {*attention.FORMATS} == {*checks.EVERY_SIZE}


# --- order ------------------------------------------------------------------------------------------------------------


class Recorder:
    """A clock on which a run takes as long as the host took to launch it."""

    def __init__(self) -> None:
        self.launched, self.ran = list[object](), list[object]()

    def launching(self, work: object) -> float:
        self.launched.append(work)
        return float(len(self.launched))

    def milliseconds(self, work: object, launching: float) -> float:
        self.ran.append(work)
        return launching


def test_sides_take_turns_and_each_goes_first_equally_often() -> None:
    clock, steps = Recorder(), list[int]()
    work = {name: lambda name=name: name for name in "abc"}
    taken = alternating(clock, work, 3, steps.append)
    assert clock.launched == list(work.values())
    assert [one() for one in clock.ran] == list("abcbcacab")  # type: ignore[operator]
    assert taken == {"a": [1.0] * 3, "b": [2.0] * 3, "c": [3.0] * 3}
    assert steps == [1, 2, 3]


# --- checks -----------------------------------------------------------------------------------------------------------


def test_an_error_over_its_bound_or_no_number_at_all_is_no_pass() -> None:
    assert Check("x", 0.1, (0.0, 0.1)).is_passed
    assert not Check("x", 0.1, (0.0, 0.11)).is_passed
    assert not Check("x", 0.1, (0.0, float("nan"))).is_passed


def test_errors_are_relative_to_what_is_expected() -> None:
    expected = torch.tensor([[3.0, 4.0], [300.0, 400.0]])
    found = torch.tensor([[3.0, 4.5], [300.0, 400.0]])
    assert relative_error(found, expected) == pytest.approx(0.1)  # however small it is beside the others
    assert share_that_differs(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 0, 4])) == 0.25


# --- without a GPU ----------------------------------------------------------------------------------------------------


def test_without_a_gpu_it_says_so_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main([]) == 2
    said = capsys.readouterr().err
    assert "there is no NVIDIA GPU here" in said
    assert "On a machine with one: make bench-gpu" in said


def test_a_torch_without_cuda_is_named_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "was built without CUDA" in (command.gpu_problem() or "")


# --- a dry run --------------------------------------------------------------------------------------------------------


@pytest.fixture
def dry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread, two formats, the interpreter."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for module in (attention, moving):
        monkeypatch.setattr(module, "FORMATS", ("bf16", "int4"))
    monkeypatch.setattr(checks, "KV_FORMATS", {name: KV_FORMATS[name] for name in ("bf16", "k8v4")})
    setting = dry_setting()
    choose(replace(setting, sizes=replace(TINY, prefilling=(Shape(4, 2, 16, 1, 17, 17),), check_heads=((16, 4),))))
    with using("triton"):
        yield
    torch.set_num_threads(threads)


def names(result: RowResult) -> list[str]:
    return [figure.name for figure in result.figures]


@pytest.mark.usefixtures("dry")
def test_a_dry_run_checks_every_op_against_its_reference() -> None:
    result = run_row(ROW["CHECK"])
    assert result.error is None
    ops = {name.split(",")[0].split()[0] for name in names(result)}
    assert ops == {
        "paged_decode", "paged_prefill", "kv_write", "page_convert", "fwht", "page_copy", "page_zero", "page_checksum"
    }  # fmt: skip
    assert all(figure.is_met for figure in result.figures)


@pytest.mark.usefixtures("dry")
def test_a_dry_run_goes_through_the_timing_of_attention() -> None:
    h1, h2 = (run_row(ROW[key], repetitions=1) for key in ("H1", "H2"))
    assert (h1.error, h2.error) == (None, None)
    assert len(h1.figures) == 2 * 5
    assert "8/2 heads of 32, 2 × 40, int4 ÷ copy" in names(h1)
    assert names(h2)[1] == "4/2 heads of 16, 1 × 17 new of 17, bf16 ÷ contiguous bf16 (SDPA)"
    assert h2.figures[1].target == Target(">=", 0.55)


@pytest.mark.usefixtures("dry")
def test_a_dry_run_goes_through_the_timing_of_what_moves_pages() -> None:
    result = run_row(ROW["MOVE"], repetitions=1)
    assert result.error is None
    assert {name.split()[0] for name in names(result)} == {
        "kv_write", "page_convert", "fwht", "page_copy", "page_zero", "page_checksum"
    }  # fmt: skip


def with_units(monkeypatch: pytest.MonkeyPatch, *found: Check) -> None:
    units = [Unit(one.name, lambda one=one: [one]) for one in found]  # type: ignore[misc]
    monkeypatch.setattr(checking, "check_units", lambda setting: units)


def failing() -> Iterable[Check]:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


@pytest.mark.usefixtures("dry")
def test_failing_unit_leaves_others_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    units = [Unit("kv_write int8", failing), Unit("fwht", lambda: [Check("fwht", 0.0, (0.0,))])]
    monkeypatch.setattr(checking, "check_units", lambda setting: units)
    result = run_row(ROW["CHECK"])
    assert result.error is not None
    assert "kv_write int8: RuntimeError: CUDA error: an illegal memory access" in result.error.message
    assert names(result) == ["fwht"]


@pytest.mark.usefixtures("dry")
def test_interrupted_check_resumes_where_it_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs: list[str] = []

    def unit(name: str, error: float) -> Unit:
        def checks() -> Iterable[Check]:
            runs.append(name)
            yield Check(name, 0.0, (error,))

        return Unit(name, checks)

    def check(*units: Unit, is_resumed: bool = True) -> RowResult:
        choose(replace(dry_setting(), out=tmp_path, is_resumed=is_resumed))
        monkeypatch.setattr(checking, "check_units", lambda setting: units)
        runs.clear()
        return run_row(ROW["CHECK"])

    check(unit("fwht", 0.0), unit("pages", float("nan")), is_resumed=False)
    result = check(unit("fwht", 0.0), unit("pages", 0.0), unit("kv_write int8", 0.0))
    assert (runs, result.error) == (["pages", "kv_write int8"], None)  # what failed is checked again
    assert {*names(result)} == {"fwht", "pages", "kv_write int8"}
    check(unit("fwht", 0.0), is_resumed=False)
    assert runs == ["fwht"]


def test_check_log_counts_for_its_kernels_only(tmp_path: Path) -> None:
    outcome = UnitOutcome("fwht", (Check("fwht", 0.1, (0.0, 0.05)),), seconds=1.5)
    log = log_open(tmp_path, "one", is_resumed=False)
    log.append(outcome)
    log.append(UnitOutcome("pages", (Check("pages", 0.1, (float("inf"),)),)))
    assert log.path is not None
    with log.path.open("a") as file:
        file.write('{"subject": "one", "unit": "kv_wr')  # killed while it wrote
    assert log_open(tmp_path, "one", is_resumed=True).passed == {"fwht": outcome}
    assert log_open(tmp_path, "two", is_resumed=True).passed == {}
    assert log_open(tmp_path, "one", is_resumed=False).passed == {}


def test_subject_changes_with_any_kernel(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    kernel = tmp_path / "kernels" / "fwht.py"
    kernel.write_text("a = 1\n")
    before = subject_of("2.13", "H100", root=tmp_path)
    assert subject_of("2.13", "H100", root=tmp_path) == before != subject_of("2.13", "H200", root=tmp_path)
    kernel.write_text("a = 2\n")
    assert subject_of("2.13", "H100", root=tmp_path) != before


DIES_AT = """
import json, os, sys
print(json.dumps({}), flush=True)
for line in sys.stdin:
    unit = json.loads(line)["unit"]
    if unit == "bad":
        os._exit(3)
    print(json.dumps({"unit": unit, "checks": [], "error": "", "seconds": 0.0}), flush=True)
"""


def test_dying_process_costs_its_own_unit_only() -> None:
    units = ["a", "bad", "b", "c"]
    found = {one.unit: one.error for one in units_checked(units, 2, (sys.executable, "-c", DIES_AT))}
    assert {*found} == {*units}
    assert "ended with status 3" in found.pop("bad")
    assert {*found.values()} == {""}


def test_processes_make_the_checks_they_are_given() -> None:
    (found,) = units_checked(["pages"], 1, (*CHECKER, "--dry-run"))
    assert [one.name for one in found.checks] == ["page_copy", "page_zero", "page_checksum"]
    assert found.is_passed


def test_processes_fit_cores_and_memory() -> None:
    assert processes_for(40, 16, 80 * 2**30) == 12
    assert processes_for(40, 2, 80 * 2**30) == 2
    assert processes_for(40, 16, 14 * 2**30) == 2
    assert processes_for(3, 16, 2**30) == 1


@pytest.mark.usefixtures("dry")
def test_every_kernel_has_one_unit() -> None:
    found = [unit.name for unit in check_units(dry_setting())]
    assert len({*found}) == len(found)
    assert {name.split()[0] for name in found} == {
        "paged_prefill", "paged_decode", "kv_write", "page_convert", "fwht", "pages"
    }  # fmt: skip


def test_rows_begin_with_checks_then_first_tokens() -> None:
    assert list(ROW) == ["CHECK", "E2", "H3", "H1", "H2", "MOVE", "BUILD"]


def test_dry_run_serves_hits_and_measures_savings() -> None:
    choose(dry_setting())
    e2, h3 = (run_row(ROW[key], repetitions=1) for key in ("E2", "H3"))
    assert (e2.error, h3.error, e2.skipped, h3.skipped) == (None, None, None, None)
    assert names(e2)[:2] == ["hit, 64 tokens, pages in bf16", "hit ÷ cold, pages in bf16"]
    assert "cost saved" in names(h3)


@pytest.mark.usefixtures("dry")
def test_a_kernel_that_is_wrong_fails_the_row_and_what_was_found_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [Check("paged_decode int8", 0.005, (0.001, 0.7)), Check("page_copy", 0.0, (float("nan"),))]
    with_units(monkeypatch, *broken, Check("fwht", 0.0, (0.0,)))
    result = run_row(ROW["CHECK"])
    assert result.error is not None
    assert "paged_decode int8: 0.7 > 0.005; page_copy: nan > 0.0" in result.error.message
    assert names(result) == ["paged_decode int8", "fwht"]


@pytest.mark.usefixtures("dry")
def test_a_kernel_that_does_not_compile_or_multiplies_fp8_fails_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = Compiled("page_copy", 46, 0, 0, 4, 9_000, 9_000, ())
    trap = replace(fine, name="paged_decode fp8", matrix_instructions=("wgmma.mma_async.f32.e4m3.e5m2",))
    found = [Outcome("page_copy", fine), Outcome("x", None, "CompilationError: no"), Outcome(trap.name, trap)]
    monkeypatch.setattr(building, "compiled_apart", lambda *_: iter(found))
    result = run_row(ROW["BUILD"])
    assert result.error is not None
    assert "x: CompilationError: no; paged_decode fp8: wgmma" in result.error.message
    assert names(result) == ["page_copy", "paged_decode fp8"]
    assert result.figures[0].parameters == {"spilled, bytes": 0, "shared memory, bytes": 0, "warps": 4}


def test_a_dry_run_keeps_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LUMINET_HOME", str(tmp_path))
    with_units(monkeypatch, Check("fwht", 0.0, (0.0,)))
    assert command.main(["--dry-run", "CHECK"]) == 0
    assert list(tmp_path.iterdir()) == []
