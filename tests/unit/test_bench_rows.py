"""Rows that fail, skip or cannot be imported, and the command that runs them."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import __main__ as command
from tests.bench import machine
from tests.bench.factories import make_registry, results_of
from tests.bench.measuring import Bench
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


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> object:
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return real(name, package)

    monkeypatch.setattr("tests.bench.plots.importlib.import_module", missing)


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
