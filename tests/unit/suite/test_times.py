"""What is recorded of a run: sums over its processes, and tables that say the same."""

from dataclasses import asdict

from tests.suite.times import Times, recorded, tables


def run_of_two() -> Times:
    run = Times(seconds=61.4)
    run.add(Times(collection=2.0, tests=3, files={"tests/unit/test_a.py": 1.25}, fixtures={"stack (package)": 30.0}))
    run.add(Times(collection=1.5, tests=1, files={"tests/e2e/test_b.py": 0.01}, fixtures={"stack (package)": 31.0}))
    return run


def test_processes_add_up() -> None:
    run = run_of_two()
    assert (run.tests, run.collection, run.processes) == (4, 3.5, 2)
    assert run.fixtures == {"stack (package)": 61.0}


def test_recorded_times_are_rounded_and_sorted() -> None:
    kept = recorded(run_of_two(), "2026-11-28")
    assert kept["files"] == {"tests/e2e/test_b.py": 0.1, "tests/unit/test_a.py": 1.2}
    assert list(kept["files"]) == ["tests/e2e/test_b.py", "tests/unit/test_a.py"]
    assert kept["seconds"] == 61


def test_tables_name_folders_files_and_fixtures() -> None:
    shown = tables(recorded(run_of_two(), "2026-11-28"))
    for row in ("| `tests/unit` | 1.2 s |", "| `tests/e2e/test_b.py` | 0.1 s |", "| `stack (package)` | 61.0 s |"):
        assert row in shown
    assert "4 tests in 61 s by 2 processes, of which collection took 3.5 s" in shown


def test_one_process_sends_plain_values() -> None:
    """xdist carries them between processes."""
    assert Times(**asdict(Times(tests=1))) == Times(tests=1)
