"""Rows that fail, skip or cannot be imported, and the command that runs them."""

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import __main__ as command
from tests.bench import machine
from tests.bench.earlier import seconds_by_row
from tests.bench.factories import make_measured, make_registry, make_run, results_of
from tests.bench.measuring import Bench
from tests.bench.progress import Outlook
from tests.bench.registry import Registry, Row, UnknownRow, discover
from tests.bench.running import run_row, run_rows

# --- rows -------------------------------------------------------------------------------------------------------------


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
    assert "factories.py" in failed.error.traceback


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


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others do meanwhile is nothing to these tests."""
    monkeypatch.setattr("tests.bench.noise.LOOK_SECONDS", 0.01)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> object:
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return real(name, package)

    monkeypatch.setattr("engine_agent.tools.plots.importlib.import_module", missing)


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
    assert "plots need matplotlib" in line
    assert "pip install" in line
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
    assert command.default_out() == Path("/srv/luminet/bench")
    monkeypatch.delenv("LUMINET_HOME")
    assert command.default_out() == machine.ROOT / ".luminet" / "bench"


@pytest.mark.usefixtures("without_matplotlib")
def test_each_row_says_when_it_was_measured_and_what_else_the_machine_did(tmp_path: Path) -> None:
    bench("W1", "--out", str(tmp_path), "--repetitions", "2")
    (kept,) = json.loads((tmp_path / "latest.json").read_text())["rows"]
    measured = kept["measured"]
    assert measured["commit"] == machine.commit_of().revision
    assert measured["repetitions_override"] == 2
    assert set(measured["noise"]) >= {"load_before", "busy_before_percent", "stolen_percent", "is_noisy"}
    assert kept["seconds"] >= 0


# --- going on ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "commit_of", lambda: machine.Commit("a1b2c3d4e5f60718", False))


def counted(ran: list[str], *, interrupts: bool = False) -> Registry:
    registry = Registry()
    for key in ("X1", "X2", "X3"):

        def run(bench: Bench, key: str = key) -> None:
            ran.append(key)
            if key == "X2" and interrupts:
                raise KeyboardInterrupt
            bench.record("latency", unit="ms", values=[1.0, 2.0])

        registry.row(key, title=f"Row {key}")(run)
    return registry


@pytest.mark.usefixtures("without_matplotlib", "clean")
def test_an_interrupted_run_goes_on_with_what_it_has_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []
    assert bench("--out", str(tmp_path), registry=counted(ran, interrupts=True)) == 1
    assert not (tmp_path / "latest.json").exists()
    assert "--resume" in capsys.readouterr().err
    assert bench("--out", str(tmp_path), "--resume", registry=counted(ran)) == 0
    assert ran == ["X1", "X2", "X2", "X3"]
    said = capsys.readouterr().err
    assert re.search(r"X1 · kept, measured at .* of the same commit", said)
    kept = json.loads((tmp_path / "latest.json").read_text())
    assert [row["key"] for row in kept["rows"]] == ["X1", "X2", "X3"]


@pytest.mark.usefixtures("without_matplotlib", "clean")
@pytest.mark.parametrize("other", [("--repetitions", "3"), ()], ids=["as often", "commit"])
def test_what_was_measured_otherwise_is_measured_again(
    tmp_path: Path, other: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    bench("X1", "--out", str(tmp_path), registry=counted(ran))
    if not other:
        monkeypatch.setattr(machine, "commit_of", lambda: machine.Commit("0000000000000000", False))
    bench("X1", "--out", str(tmp_path), "--resume", *other, registry=counted(ran))
    assert ran == ["X1", "X1"]


@pytest.mark.usefixtures("without_matplotlib")
def test_with_uncommitted_changes_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "commit_of", lambda: machine.Commit("a1b2c3d4e5f60718", True))
    ran: list[str] = []
    bench("X1", "--out", str(tmp_path), registry=counted(ran))
    bench("X1", "--out", str(tmp_path), "--resume", registry=counted(ran))
    assert ran == ["X1", "X1"]
    assert "uncommitted changes" in capsys.readouterr().err


# --- how long it takes ------------------------------------------------------------------------------------------------


def test_how_long_it_takes_is_said_before_by_what_rows_took_last_time() -> None:
    outlook = Outlook(make_registry().rows(), {"C2": 90.0, "C10": 3600.0, "W1": 30.0})
    assert outlook.before_all().startswith("4 rows: about 1 h 2 min as last time, and whatever S1 take")
    assert outlook.before(1).startswith("[2 of 4] C10 takes about 1 h 0 min · 0 s gone, about 1 h 0 min to go")
    assert "was not measured before" in outlook.before(2)


def test_a_shortened_run_says_nothing_about_how_long_a_whole_one_takes() -> None:
    whole, short = (make_run(make_measured(seconds, repetitions)) for seconds, repetitions in ((60.0, None), (5.0, 2)))
    assert seconds_by_row([short, whole], None) == {"X1": 60.0}
    assert seconds_by_row([short, whole], 2) == {"X1": 5.0}
