"""The bench harness: statistics, alternation, targets, failing rows, what is shown and kept. Asserts no time."""

import importlib
import io
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.bench import __main__ as command
from tests.bench import machine, report
from tests.bench.harness import (
    Bench,
    Figure,
    Registry,
    Row,
    RowResult,
    Target,
    UnknownRow,
    discover,
    run_row,
    run_rows,
    statistics_of,
    timed,
)

MACHINE = machine.Machine("Abacus 3", 2, 7.8, "Debian 12", "6.1", None, "3.11.9", 0.25)


def make_run(*results: RowResult, revision: str | None = "a1b2c3d4e5f60718") -> report.Run:
    started = datetime(2026, 7, 30, 12, 0, 5, tzinfo=UTC)
    return report.Run(started, machine.Commit(revision, True), MACHINE, {"django": "5.2.19"}, None, list(results), True)


def make_figure(*values: float, unit: str = "ms", target: Target | None = None) -> Figure:
    return Bench("X1").record("latency", unit=unit, values=values, target=target)


def make_result(*figures: Figure, key: str = "X1", notes: tuple[str, ...] = ()) -> RowResult:
    return RowResult(key, "A title", "≤ 2 ms", None, figures, notes)


def make_comparison(target: Target | None = None) -> Figure:
    ours, theirs = iter([2.0, 3.0, 8.0]), iter([4.0, 4.0, 4.0])
    return Bench("X1").compare(
        "hash",
        unit="µs",
        ours=lambda: next(ours),
        theirs=lambda: next(theirs),
        theirs_name="vLLM 0.32",
        repetitions=3,
        warmup=0,
        target=target,
        parameters={"tokens": 4096},
    )


# --- statistics -------------------------------------------------------------------------------------------------------


def test_quantiles_interpolate_between_the_closest_ranks() -> None:
    found = statistics_of([40.0, 10.0, 20.0, 30.0])  # ranks 0..3, so p25 is at 0.75 and the median at 1.5
    assert (found.n, found.min, found.max) == (4, 10.0, 40.0)
    assert (found.p25, found.median, found.p75) == (17.5, 25.0, 32.5)
    assert (found.p5, found.p95, found.p99) == pytest.approx((11.5, 38.5, 39.7))


def test_the_spread_is_the_interquartile_range_as_a_share_of_the_median() -> None:
    assert statistics_of([10.0, 20.0, 30.0, 40.0]).spread_percent == pytest.approx(60.0)  # (32.5 - 17.5) / 25


def test_one_sample_has_quantiles_but_no_spread() -> None:
    found = statistics_of([7.0])
    assert (found.p5, found.median, found.p99, found.spread_percent) == (7.0, 7.0, 7.0, None)


def test_a_median_of_zero_has_no_relative_spread() -> None:
    assert statistics_of([0.0, 0.0, 9.0]).spread_percent is None


# --- measuring --------------------------------------------------------------------------------------------------------


def test_warm_up_samples_are_taken_and_dropped() -> None:
    values = iter([900.0, 800.0, 1.0, 2.0, 3.0])
    figure = Bench("X1").measure("start", unit="s", sample=lambda: next(values), repetitions=3, warmup=2)
    assert figure.ours.samples == (1.0, 2.0, 3.0)
    assert next(values, None) is None


def test_a_comparison_alternates_its_sides() -> None:
    calls = ""

    def side(letter: str) -> float:
        nonlocal calls
        calls += letter
        return 1.0

    Bench("X1").compare(
        "hash",
        unit="µs",
        ours=lambda: side("o"),
        theirs=lambda: side("t"),
        theirs_name="vLLM",
        repetitions=4,
        warmup=1,
    )
    assert calls == "ot" + "ot" + "to" + "ot" + "to"


def test_a_ratio_is_taken_per_pair_and_the_target_judges_it() -> None:
    figure = make_comparison(Target("<=", 0.8))
    assert figure.ratio is not None
    assert figure.ratio.samples == (0.5, 0.75, 2.0)
    assert figure.judged_value == 0.75
    assert figure.is_met is True


def test_a_ratio_to_zero_names_the_side_that_measured_nothing() -> None:
    with pytest.raises(ValueError, match="vLLM measured 0 µs"):
        Bench("X1").compare("hash", unit="µs", ours=lambda: 1.0, theirs=lambda: 0.0, theirs_name="vLLM")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_sample_that_is_not_a_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="latency: a sample is"):
        make_figure(1.0, value)


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="latency: no values"):
        make_figure()


def test_a_figure_name_is_used_once_per_row() -> None:
    bench = Bench("X1")
    bench.record("hits", unit="%", values=[1.0])
    with pytest.raises(ValueError, match="X1 already has a figure named 'hits'"):
        bench.record("hits", unit="%", values=[2.0])


def test_the_command_overrules_a_figures_own_repetitions() -> None:
    bench = Bench("X1", repetitions=2)
    assert bench.measure("start", unit="s", sample=lambda: 1.0, repetitions=50).ours.statistics.n == 2
    assert bench.repetitions(50) == 2
    assert Bench("X1").repetitions(50) == 50


def test_a_timed_sample_is_divided_by_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 10.5])
    monkeypatch.setattr("tests.bench.harness.time.perf_counter", lambda: next(clock))
    done: list[int] = []
    assert timed(lambda: done.append(1), unit="ms", calls=5)() == pytest.approx(100.0)
    assert len(done) == 5


# --- targets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "met", "short", "by"),
    [
        (Target("<=", 2.0), 2.0, 2.5, 0.5),
        (Target("<", 2.0), 1.9, 2.0, 0.0),
        (Target(">=", 8.0), 8.0, 7.0, 1.0),
        (Target(">", 8.0), 8.1, 8.0, 0.0),
        (Target("==", 0.0), 0.0, 3.0, 3.0),
        (Target("==", 37.5, tolerance=0.5), 37.0, 38.75, 0.75),
    ],
)
def test_a_target_knows_what_meets_it_and_how_far_the_rest_is(
    target: Target, met: float, short: float, by: float
) -> None:
    assert (target.is_met(met), target.shortfall(met)) == (True, 0.0)
    assert (target.is_met(short), target.shortfall(short)) == (False, by)


def test_a_target_may_judge_another_statistic_than_the_median() -> None:
    assert make_figure(1.0, 1.0, 9.0, target=Target("<=", 2.0)).is_met is True
    assert make_figure(1.0, 1.0, 9.0, target=Target("<=", 2.0, of="max")).is_met is False


def test_a_figure_without_target_is_neither_met_nor_short() -> None:
    assert make_figure(1.0).is_met is None


def test_only_an_equality_has_a_tolerance() -> None:
    with pytest.raises(ValueError, match="tolerance goes with =="):
        Target("<=", 1.0, tolerance=0.1)


# --- rows -------------------------------------------------------------------------------------------------------------


def make_registry() -> Registry:
    """W1 measures, C10 skips after one figure, C2 raises after one, S1 says nothing."""
    registry = Registry()

    @registry.row("W1", title="Web", target="≤ 2 s")
    def web(bench: Bench) -> None:
        bench.record("start", unit="s", values=[3.0], target=Target("<=", 2.0))
        bench.note("torch was imported")

    @registry.row("C10", title="GPU")
    def gpu(bench: Bench) -> None:
        bench.record("copy", unit="TB/s", values=[4.3])
        bench.skip("no GPU here")

    @registry.row("C2", title="Hit")
    def hit(bench: Bench) -> None:
        bench.record("look-up", unit="µs", values=[5.0])
        raise RuntimeError("pool is\nempty")

    @registry.row("S1", title="Silent")
    def silent(bench: Bench) -> None:
        """Neither measures nor says why."""

    return registry


def results_of(registry: Registry) -> dict[str, RowResult]:
    return {result.key: result for result in run_rows(registry.rows())}


def test_a_failing_row_does_not_hide_the_others() -> None:
    results = results_of(make_registry())
    assert {key: result.status for key, result in results.items()} == {
        "C2": "failed",
        "C10": "not measured",
        "S1": "failed",
        "W1": "measured",
    }


def test_a_failing_row_keeps_its_figures_and_its_error() -> None:
    failed = results_of(make_registry())["C2"]
    assert [figure.name for figure in failed.figures] == ["look-up"]
    assert failed.error is not None
    assert failed.error.message == "RuntimeError: pool is empty"
    assert "test_bench_harness.py" in failed.error.traceback


def test_a_row_that_calls_exit_is_a_failed_row() -> None:
    def leave(bench: Bench) -> None:
        sys.exit(3)

    assert run_row(Row("X1", "Leaves", "", None, leave)).status == "failed"


def test_a_row_that_measures_nothing_must_say_why() -> None:
    silent = results_of(make_registry())["S1"]
    assert silent.error is not None
    assert "bench.skip" in silent.error.message


def test_after_an_interrupt_the_rest_is_shown_as_not_measured() -> None:
    def interrupt(bench: Bench) -> None:
        raise KeyboardInterrupt

    ran: list[str] = []
    rows = [Row("X1", "", "", None, interrupt), Row("X2", "", "", None, lambda bench: ran.append("X2"))]
    first, second = run_rows(rows)
    assert (first.status, second.status, second.skipped) == ("failed", "not measured", "interrupted before its turn")
    assert ran == []


def test_rows_are_ordered_by_number_not_by_digit() -> None:
    assert [row.key for row in make_registry().rows()] == ["C2", "C10", "S1", "W1"]


def test_rows_are_selected_in_the_order_asked_and_once() -> None:
    assert [row.key for row in make_registry().select(["w1", "C2", "W1"])] == ["W1", "C2"]


def test_an_unknown_row_is_told_the_known_ones() -> None:
    with pytest.raises(UnknownRow, match="unknown row X9, X8; known: C2, C10, S1, W1"):
        make_registry().select(["X9", "C2", "X8"])


def test_a_key_is_registered_once() -> None:
    with pytest.raises(ValueError, match="row W1 is registered twice"):
        make_registry().row("W1", title="Again")(lambda bench: None)


@pytest.fixture
def rows_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An importable, empty package `made_up_rows`."""
    package = tmp_path / "made_up_rows"
    package.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [name for name in sys.modules if name.startswith("made_up_rows")]:
        del sys.modules[name]


def test_every_module_of_the_package_is_imported(rows_package: Path) -> None:
    (rows_package / "one.py").write_text("")
    (rows_package / "two.py").write_text("")
    assert discover("made_up_rows") == []
    assert {"made_up_rows.one", "made_up_rows.two"} <= set(sys.modules)


def test_a_module_that_cannot_be_imported_is_reported_and_passed_over(rows_package: Path) -> None:
    (rows_package / "broken.py").write_text("import no_such_engine")
    (rows_package / "sound.py").write_text("")
    (broken,) = discover("made_up_rows")
    assert (broken.key, broken.status) == ("broken.py", "failed")
    assert broken.error is not None
    assert "no_such_engine" in broken.error.message
    assert "made_up_rows.sound" in sys.modules


def test_a_package_that_is_not_there_has_no_rows() -> None:
    assert discover("tests.no_such_rows") == []


# --- what is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (2.0, "2"),
        (12031.0, "12,031"),
        (1234.5, "1,234"),
        (1.4, "1.40"),
        (0.01234, "0.0123"),
        (-2.5, "-2.50"),
    ],
)
def test_numbers_show_three_significant_digits(value: float, text: str) -> None:
    assert report.format_number(value) == text


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (make_figure(1.0), "– no target"),
        (make_figure(1.0, target=Target("<=", 2.0)), "✓ met"),
        (make_figure(2.5, target=Target("<=", 2.0)), "✗ short by 25 %"),
        (make_figure(2.001, target=Target("<=", 2.0)), "✗ short by less than 0.1 %"),
        (make_figure(7.0, target=Target("<=", 2.0)), "✗ short by a factor of 3.50"),
        (make_figure(6.0, target=Target(">=", 8.0)), "✗ short by 25 %"),
        (make_figure(1.0, 5.0, target=Target("<=", 4.0, of="max")), "✗ short by 25 % (max 5 ms)"),
        (make_figure(1.0, 3.0, target=Target("<=", 4.0, of="max")), "✓ met (max 3 ms)"),
        (make_figure(3.0, unit="tokens", target=Target("==", 0.0)), "✗ short by 3 tokens"),
        (make_figure(36.25, unit="%", target=Target("==", 37.0, tolerance=0.5)), "✗ short by 0.250 points"),
    ],
)
def test_a_verdict_says_by_how_much_a_figure_is_short(figure: Figure, text: str) -> None:
    assert report.verdict(figure) == text


def test_targets_are_shown_as_they_were_written() -> None:
    assert report.target_text(Target("<=", 0.5), "×") == "≤ 0.5 ×"
    assert report.target_text(Target("<=", 20.0, of="p95"), "ms") == "p95 ≤ 20 ms"
    assert report.target_text(Target("==", 37.4, tolerance=0.5), "%") == "= 37.4 ± 0.5 %"


def test_the_table_shows_both_sides_and_the_ratio_with_their_units() -> None:
    text = report.terminal(make_run(make_result(make_comparison(Target("<=", 0.5)))), colour=False)
    ours, theirs, ratio = (line for line in text.splitlines() if line.startswith("    hash"))
    assert re.search(r"hash · ours +3 +3 µs ", ours)
    assert re.search(r"hash · vLLM 0.32 +3 +4 µs ", theirs)
    assert re.search(r"hash · ours ÷ theirs +3 +0.750 × .* ≤ 0.5 ×   ✗ short by 50 %$", ratio)
    assert ours.index("µs") == theirs.index("µs")
    assert "tokens 4,096" in text


def test_the_table_shows_skips_errors_and_notes() -> None:
    text = report.terminal(make_run(*results_of(make_registry()).values()), colour=False)
    assert "– not measured: no GPU here" in text
    assert "! failed: RuntimeError: pool is empty" in text
    assert "note: torch was imported" in text
    assert "figures: 3 (0 met, 1 short, 2 without target) · rows: 4 (1 measured, 1 not measured, 2 failed)" in text


def test_the_table_says_where_it_was_measured() -> None:
    text = report.terminal(make_run(), colour=False)
    for fact in (
        "a1b2c3d4e5 with uncommitted changes",
        "Abacus 3",
        "7.8 GiB",
        "no GPU",
        "Python 3.11.9",
        "django 5.2.19",
    ):
        assert fact in text


def test_colour_changes_nothing_but_colour() -> None:
    run = make_run(*results_of(make_registry()).values())
    plain, coloured = report.terminal(run, colour=False), report.terminal(run, colour=True)
    assert "\x1b[" not in plain
    assert "\x1b[31m✗ short by 50 %\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_that_did_not_decline_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert report.wants_colour(Terminal()) is True
    assert report.wants_colour(io.StringIO()) is False
    monkeypatch.setenv("NO_COLOR", "1")
    assert report.wants_colour(Terminal()) is False


def test_markdown_escapes_pipes_and_shows_the_plot() -> None:
    figure = Bench("X1").record("a | b", unit="ms", values=[1.5])
    text = report.markdown(make_run(make_result(figure)), {"X1": "x1.png"})
    assert r"| a \| b | 1 | 1.50 ms |" in text
    assert "![X1: A title](x1.png)" in text


def test_progress_is_one_updating_line_on_a_terminal_and_a_line_per_figure_elsewhere() -> None:
    live, plain = Terminal(), io.StringIO()
    for stream in (live, plain):
        bench = Bench("W1", on_step=report.Progress(stream).step)
        bench.measure("start", unit="s", sample=lambda: 1.0, repetitions=3)
    assert "\n" not in live.getvalue()
    assert "W1 · start · repetition 2/3" in live.getvalue()
    assert plain.getvalue() == "W1 · start · 3 repetitions\n"


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_the_json_holds_every_sample_its_statistics_and_its_target(tmp_path: Path) -> None:
    run = make_run(make_result(make_comparison(Target("<=", 0.5)), notes=("read me",)))
    path = report.write_json(run, tmp_path / "deep" / "out")
    assert path.name == "20260730T120005Z-a1b2c3d4e5.json"
    kept = json.loads(path.read_text())
    assert (kept["schema_version"], kept["commit"], kept["is_dirty"]) == (1, "a1b2c3d4e5f60718", True)
    assert (kept["machine"]["cpu"], kept["versions"]) == ("Abacus 3", {"django": "5.2.19"})
    (row,) = kept["rows"]
    (figure,) = row["figures"]
    assert (row["status"], row["notes"], figure["is_met"]) == ("measured", ["read me"], False)
    assert figure["ours"]["samples"] == [2.0, 3.0, 8.0]
    assert figure["theirs"]["statistics"]["median"] == 4.0
    assert figure["ratio"]["samples"] == [0.5, 0.75, 2.0]
    assert (figure["target"]["bound"], figure["parameters"]) == (0.5, {"tokens": 4096})
    assert (path.parent / "latest.json").read_bytes() == path.read_bytes()


def test_an_incomplete_run_is_kept_but_is_not_the_latest(tmp_path: Path) -> None:
    run = make_run(make_result(make_figure(1.0)))
    run.is_complete = False
    assert json.loads(report.write_json(run, tmp_path).read_text())["is_complete"] is False
    assert not (tmp_path / "latest.json").exists()


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "latest.json"
    report.write_atomically(path, b"old")

    def full(source: str, target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("tests.bench.report.os.replace", full)
    with pytest.raises(OSError, match="disk full"):
        report.write_atomically(path, b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("latest.json", b"old")]


def test_a_comparison_is_plotted_as_two_sides_and_their_ratio() -> None:
    sides, ratio = report.panels(make_result(make_comparison(Target("<=", 0.5))))
    assert sides.title == "hash: ours 3 µs, vLLM 0.32 4 µs"
    assert (sides.axis, [series.name for series in sides.series]) == ("hash [µs]", ["ours", "vLLM 0.32"])
    assert ratio.title == "hash: ours ÷ theirs 0.750 ×   ✗ short by 50 % · target ≤ 0.5 ×"
    assert (ratio.axis, ratio.is_met) == ("hash, ours ÷ theirs per pair [×]", False)


def test_a_row_is_drawn_as_png_and_svg(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `bench`")
    figures = [make_comparison(Target("<=", 0.5)), make_figure(0.0, 0.0, target=Target("==", 0.0, of="max"))]
    run = make_run(make_result(*figures), make_result(key="X2"))
    names = report.write_plots(run, tmp_path)
    assert names == {"X1": "20260730T120005Z-a1b2c3d4e5-X1.png"}
    assert (tmp_path / names["X1"]).read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(tmp_path / names["X1"].replace(".png", ".svg")).getroot().tag.endswith("svg")


# --- the machine ------------------------------------------------------------------------------------------------------


def test_a_folder_without_git_has_no_commit(tmp_path: Path) -> None:
    commit = machine.commit_of(tmp_path)
    assert (commit.revision, commit.is_dirty, commit.short) == (None, None, "nocommit")


def test_only_installed_packages_have_versions(tmp_path: Path) -> None:
    extras = '[project.optional-dependencies]\nx = ["pytest>=1,<99", "no-such-package[all]; python_version > \'3\'"]\n'
    (tmp_path / "pyproject.toml").write_text(extras)
    versions = machine.package_versions(tmp_path)
    assert versions["pytest"] == pytest.__version__
    assert "no-such-package" not in versions


def test_this_machine_has_cores_and_memory() -> None:
    found = machine.this_machine()
    assert min(found.cores, found.memory_gib) > 0
    assert all([found.cpu, found.os, found.kernel])


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> object:
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return real(name, package)

    monkeypatch.setattr("tests.bench.report.importlib.import_module", missing)


def bench(*argv: str, registry: Registry | None = None) -> int:
    return command.main(argv, package="tests.no_such_rows", registry=registry or make_registry())


@pytest.mark.usefixtures("without_matplotlib")
def test_a_short_figure_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("W1", "--out", str(tmp_path)) == 0
    assert "✗ short by 50 %" in capsys.readouterr().out


@pytest.mark.usefixtures("without_matplotlib")
def test_a_failed_row_fails_the_command_after_all_rows_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--out", str(tmp_path)) == 1
    kept = json.loads((tmp_path / "latest.json").read_text())
    assert [row["key"] for row in kept["rows"]] == ["C2", "C10", "S1", "W1"]
    assert kept["rows"][0]["error"]["message"] == "RuntimeError: pool is empty"
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.usefixtures("without_matplotlib")
def test_without_matplotlib_the_rest_is_kept_and_one_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("W1", "--out", str(tmp_path)) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "no plots" in line]
    assert "matplotlib comes with the extra `bench`" in line
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".json", ".json", ".md"]


def test_an_unknown_row_exits_2_and_measures_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("X9", "W1", "--out", str(tmp_path)) == 2
    assert "unknown row X9; known: C2, C10, S1, W1" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_package_without_rows_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(registry=Registry()) == 2
    assert "nothing was measured" in capsys.readouterr().err


def test_listing_shows_the_rows_and_measures_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--list", "--out", str(tmp_path)) == 0
    assert "W1   Web: ≤ 2 s" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_matplotlib")
def test_a_broken_module_fails_a_full_run_but_not_the_rows_asked_for(
    rows_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rows_package / "broken.py").write_text("import no_such_engine")
    registry = Registry()
    registry.row("W1", title="Web")(lambda bench: bench.skip("not here"))
    out = ["--out", str(tmp_path / "out")]
    assert command.main(["W1", *out], package="made_up_rows", registry=registry) == 0
    assert "no_such_engine" in capsys.readouterr().err
    assert command.main(out, package="made_up_rows", registry=registry) == 1


def test_results_go_to_luminet_home_or_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINET_HOME", "/srv/luminet")
    assert command._default_out() == Path("/srv/luminet/bench")
    monkeypatch.delenv("LUMINET_HOME")
    assert command._default_out() == machine.ROOT / ".luminet" / "bench"
