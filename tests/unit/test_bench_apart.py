"""A row in a process of its own: what it finds comes back, and whatever becomes of it disturbs nobody."""

from pathlib import Path

import psutil
import pytest

from tests.bench import apart
from tests.bench.apart import run_apart
from tests.bench.measuring import Bench, silent
from tests.bench.registry import Registry, Row
from tests.bench.running import is_interrupted
from tests.support.waiting import wait_until

MADE_UP = """\
import os, signal, subprocess, sys, time
from tests.bench import Bench, Target, row

@row("X1", title="Measures", target="≤ 2 s", beside="nobody")
def measures(bench: Bench) -> None:
    bench.record("start", unit="s", values=[1.0, 3.0] * (bench.repetitions(3) // 2 or 1), target=Target("<=", 2.0))
    bench.note("all is well")

@row("X2", title="Dies")
def dies(bench: Bench) -> None:
    bench.record("start", unit="s", values=[1.0])
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    open(os.environ["LEFT"], "w").write(str(child.pid))
    os.kill(os.getpid(), signal.SIGKILL)

@row("X3", title="Hangs")
def hangs(bench: Bench) -> None:
    bench.record("start", unit="s", values=[1.0])
    open(os.environ["LEFT"], "w").close()
    time.sleep(600)
"""


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Row]:
    """Rows of a module that only their processes import."""
    (tmp_path / "made_up_row.py").write_text(MADE_UP, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LEFT", str(tmp_path / "left"))
    registry = Registry()
    for key, title in (("X1", "Measures"), ("X2", "Dies"), ("X3", "Hangs"), ("X9", "Is in no module")):

        def run(bench: Bench) -> None:
            raise AssertionError("run here, not apart")

        run.__module__ = "made_up_row"
        registry.row(key, title=title)(run)
    return {row.key: row for row in registry.rows()}


def test_what_a_row_found_comes_back_whole(rows: dict[str, Row]) -> None:
    result = run_apart(rows["X1"], 4, silent)
    assert (result.status, result.title, result.target, result.beside) == ("measured", "Measures", "≤ 2 s", "nobody")
    (figure,) = result.figures
    assert (figure.ours.samples, figure.is_met) == ((1.0, 3.0, 1.0, 3.0), True)
    assert result.notes == ("all is well",)


def test_a_row_whose_process_dies_has_failed_and_leaves_nobody_behind(rows: dict[str, Row], tmp_path: Path) -> None:
    result = run_apart(rows["X2"], None, silent)
    assert result.error is not None
    assert result.error.message == "its process ended with status -9 and left no result"
    assert not _is_alive(int((tmp_path / "left").read_text()))


def test_a_row_that_hangs_is_ended_and_the_next_one_has_its_turn(rows: dict[str, Row]) -> None:
    result = run_apart(rows["X3"], None, silent, most_seconds=1)
    assert result.error is not None
    assert result.error.message == "did not end within 1 s"
    assert not is_interrupted(result)


def test_a_row_that_is_in_no_module_has_failed(rows: dict[str, Row]) -> None:
    assert run_apart(rows["X9"], None, silent).status == "failed"


def test_ctrl_c_reaches_the_row_whose_figures_are_kept(
    rows: dict[str, Row], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(apart, "_ended", lambda process, seconds: _ctrl_c_once_it_hangs(tmp_path / "left"))
    result = run_apart(rows["X3"], None, silent)
    assert is_interrupted(result)
    assert [figure.name for figure in result.figures] == ["start"]


def _ctrl_c_once_it_hangs(told: Path) -> None:
    wait_until(told.exists, "the row to begin")
    raise KeyboardInterrupt


def _is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
