"""Two processes of pytest share out files: each collects and runs its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite.files import CHECKOUT

FILES = ("tests/unit/test_addresses.py", "tests/unit/test_ports.py", "tests/unit/suite/test_files.py")
SHARED = ("-n", "2", "--dist", "loadfile", "--max-worker-restart", "0")


def pytest_run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def shared() -> str:
    done = pytest_run(*SHARED, "-v", *FILES)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_each_file_is_run_once_by_one_process(shared: str) -> None:
    passed = [line for line in shared.splitlines() if " PASSED " in line]
    assert len({line.split(" PASSED ")[1] for line in passed}) == len(passed)
    for file in FILES:
        assert len({line.split("]")[0] for line in passed if file in line}) == 1, file
    assert len({line.split("]")[0] for line in passed}) == 2


def test_progress_ends_at_all(shared: str) -> None:
    assert "[100%]" in shared
    assert "[101%]" not in shared


@pytest.mark.parametrize("missing", [f"{FILES[0]}::test_nothing", "tests/unit/test_nothing.py"])
def test_missing_test_fails_the_run(missing: str) -> None:
    done = pytest_run("-n", "1", *SHARED[2:], missing, FILES[1])
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"there is no {'test ' if '::' in missing else ''}{missing}" in done.stdout + done.stderr


HANGS = """
import threading

def test_that_waits_for_ever():
    threading.Event().wait()
"""


def test_hanging_test_fails_the_run_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGS)
    ours = ("-c", str(CHECKOUT / "pyproject.toml"), "-o", "faulthandler_timeout=1")
    done = pytest_run(*SHARED, *ours, str(tmp_path / "test_hanging.py"))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "::test_that_waits_for_ever" in done.stdout
    assert 'test_hanging.py", line 5 in test_that_waits_for_ever' in done.stderr


def test_no_test_may_hang(pytestconfig: pytest.Config) -> None:
    assert float(pytestconfig.getini("faulthandler_timeout")) > 0
    assert pytestconfig.getini("faulthandler_exit_on_timeout") is True
