"""When the full kernel matrix runs, and when a run counts: only if nothing was left out and nothing failed."""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

import pytest

from controlplane.stack.bootstrap import CHECKOUT
from tests.kernels import __main__ as full
from tests.kernels import ci, verified
from tests.kernels.__main__ import Tally
from tests.kernels.verified import Ids, current_ids, differences, files_of_tests, verified_ids, verified_write
from tests.support.make import planned

IDS = {"kernels": "1", "tests": "2", "torch": "2.13.0"}


def run_of(code: int = 0, **outcomes: int) -> full.Run:
    """A run that ends with these counts."""

    def run(arguments: Sequence[str], tally: Tally) -> int:
        tally.outcomes.update(outcomes)
        return code

    return run


@pytest.fixture(scope="module")
def before() -> Ids:
    return current_ids()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of all that the ids are of, to change."""
    shutil.copytree(CHECKOUT / "kernels", tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    for file in files_of_tests():
        copy = tmp_path / file.relative_to(CHECKOUT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    return tmp_path


# Ids


def test_ids_are_of_contents_alone(checkout: Path, before: Ids) -> None:
    (checkout / "kernels" / "__pycache__").mkdir()
    (checkout / "kernels" / "__pycache__" / "fwht.cpython-311.pyc").write_bytes(b"x")
    (checkout / "kernels" / "fwht.py").touch()
    assert current_ids(checkout) == before


@pytest.mark.parametrize(
    ("name", "differing"),
    [
        ("kernels/fwht.py", "kernels"),
        ("kernels/native/attention.c", "kernels"),
        ("kernels/codecs/int8.py", "kernels"),
        ("kernels/new.h", "kernels"),
        ("tests/unit/kernels/test_fwht.py", "tests"),
        ("tests/unit/kernels/conftest.py", "tests"),
        ("tests/unit/kernels/test_new.py", "tests"),
        ("tests/kernels/matrix.py", "tests"),  # imported by the tests
        ("tests/bench/gpu/compiled.py", "tests"),
        ("tests/bench/measuring.py", "tests"),  # imported by tests/bench/__init__.py
    ],
)
def test_changed_file_changes_one_id(checkout: Path, before: Ids, name: str, differing: str) -> None:
    with (checkout / name).open("a") as file:
        file.write("# changed\n")
    assert differences(before, current_ids(checkout)) == [differing]


def test_renamed_file_changes_the_id(checkout: Path, before: Ids) -> None:
    (checkout / "kernels" / "fwht.py").rename(checkout / "kernels" / "renamed.py")
    assert differences(before, current_ids(checkout)) == ["kernels"]


def test_other_files_change_no_id(checkout: Path, before: Ids) -> None:
    (checkout / "tests" / "kernels" / "verified.json").write_text("{}")
    (checkout / "tests" / "api.py").write_text("")
    assert current_ids(checkout) == before


@pytest.mark.parametrize("name", ["torch", "triton", "numpy"])
def test_library_version_is_an_id(monkeypatch: pytest.MonkeyPatch, before: Ids, name: str) -> None:
    monkeypatch.setattr(verified, "version", lambda library: "0.0" if library == name else version(library))
    assert differences(before, current_ids()) == [name]


@pytest.mark.parametrize(
    ("function", "name"), [("compiler_version", "compiler"), ("processor", "processor"), ("platform", "python")]
)
def test_compiler_processor_and_python_are_ids(
    monkeypatch: pytest.MonkeyPatch, before: Ids, function: str, name: str
) -> None:
    if function == "platform":
        monkeypatch.setattr(platform, "python_version", lambda: "3.99")
    else:
        monkeypatch.setattr(verified, function, lambda *_: "another")
    assert differences(before, current_ids()) == [name]


# What CI does


def ran(verified: dict[str, str], current: dict[str, str], code: int = 0) -> tuple[int, bool]:
    """CI's status, and whether the full matrix ran."""
    runs: list[Sequence[str]] = []

    def run(arguments: Sequence[str]) -> int:
        runs.append(arguments)
        return code

    return ci.main(run, lambda: verified, lambda: current), bool(runs)


def test_ci_leaves_out_what_was_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(IDS, dict(IDS), code=1) == (0, False)
    assert capsys.readouterr().out.splitlines() == [ci.LEFT_OUT]


@pytest.mark.parametrize("name", IDS)
def test_ci_runs_and_names_what_changed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(IDS, {**IDS, name: "other"}) == (0, True)
    assert capsys.readouterr().out.splitlines()[0].endswith(f"since the last green full run: {name}.")


def test_ci_runs_without_a_record_and_fails_with_the_run() -> None:
    assert ran({}, IDS) == (0, True)
    assert ran({}, IDS, code=1) == (1, True)
    assert ran({**IDS, "retired": "1"}, IDS) == (0, True)


@pytest.mark.parametrize("content", ["", "<<<<<<< HEAD\n{}", "[]", "{}", '{"ids": null}'])
def test_unreadable_record_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "verified.json").write_text(content)
    assert verified_ids(tmp_path / "verified.json") == {}
    assert verified_ids(tmp_path / "missing.json") == {}


def test_make_runs_the_full_matrix() -> None:
    assert planned("test-kernels")[-1].endswith("-m tests.kernels")


# What is recorded


def test_green_full_run_is_recorded(tmp_path: Path) -> None:
    file = tmp_path / "verified.json"
    assert full.main([], run=run_of(passed=9), ids=lambda: IDS, environ={}, file=file) == 0
    assert verified_ids(file) == IDS
    assert json.loads(file.read_text())["passed"] == 9


@pytest.mark.parametrize(
    ("why", "run", "arguments", "environ"),
    [
        ("a failure", run_of(1, passed=9, failed=1), [], {}),
        ("an interrupt", run_of(2, passed=9), [], {}),
        ("a worker that died", run_of(1, passed=9), [], {}),
        ("no tests", run_of(5), [], {}),
        ("a filter", run_of(passed=9), ["-k", "fwht"], {}),
        ("a filter from outside", run_of(passed=9), [], {"PYTEST_ADDOPTS": "-k fwht"}),
        ("a skip", run_of(passed=9, skipped=1), [], {}),
        ("an expected failure", run_of(passed=9, xfailed=1), [], {}),
        ("a file that could not be collected", run_of(passed=9, failed=1), [], {}),
        ("nothing that passed", run_of(), [], {}),
    ],
)
def test_any_other_run_records_nothing(
    tmp_path: Path, why: str, run: full.Run, arguments: list[str], environ: dict[str, str]
) -> None:
    file = tmp_path / "verified.json"
    verified_write({"kernels": "before"}, 1, file, day=date(2026, 11, 28))
    before = file.read_text()
    full.main(arguments, run=run, ids=lambda: IDS, environ=environ, file=file)
    assert file.read_text() == before, why


def test_failed_run_ends_with_its_status(tmp_path: Path) -> None:
    assert full.main([], run=run_of(1, failed=1), ids=lambda: IDS, environ={}, file=tmp_path / "x.json") == 1


def test_files_changed_during_the_run_are_not_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = iter([IDS, {**IDS, "kernels": "edited"}])
    file = tmp_path / "verified.json"
    assert full.main([], run=run_of(passed=9), ids=lambda: next(states), environ={}, file=file) == 0
    assert not file.exists()
    assert "files or versions changed while it ran" in capsys.readouterr().out


ENDS = """
import pytest
def test_passes(): pass
def test_fails(): assert False
def test_skips(): pytest.skip("no compiler")
def test_has_parts(subtests):
    with subtests.test():
        assert False
@pytest.fixture
def broken(): raise ValueError
def test_cannot_begin(broken): pass
@pytest.mark.xfail
def test_expected(): assert False
"""
TALLY = """
import json, sys, pytest
from tests.kernels.__main__ import Tally
tally = Tally()
code = pytest.main(["-q", "-c", "/dev/null", "--continue-on-collection-errors", *sys.argv[1:]], plugins=[tally])
print(json.dumps([code, tally.outcomes]))
"""


@pytest.mark.parametrize("options", [[], ["-p", "xdist", "-n", "1"]], ids=["one process", "xdist"])
def test_tally_counts_how_real_tests_end(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "test_ends.py").write_text(ENDS)
    (tmp_path / "test_broken.py").write_text("import nothing_of_the_sort")
    command = [sys.executable, "-c", TALLY, *options, str(tmp_path)]
    environ = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins that take seconds to import
    done = subprocess.run(command, cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    code, outcomes = json.loads(lines[-1])
    assert code == 1
    assert outcomes == {"passed": 1, "failed": 5, "skipped": 1, "xfailed": 1}
