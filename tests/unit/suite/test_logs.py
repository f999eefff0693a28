"""Logs of servers outlive their folder where a test failed, and only there."""

from pathlib import Path

import pytest

from tests.suite import logs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(logs, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(logs, "_failed", [])
    folder = tmp_path / "luminet-e2e-x"
    (folder / "home" / "logs").mkdir(parents=True)
    (folder / "home" / "logs" / "web.log").write_text("it broke")
    (folder / "home" / "data").touch()
    return folder


def report(outcome: str) -> pytest.TestReport:
    return pytest.TestReport("tests/x.py::test_y", ("tests/x.py", 1, "test_y"), {}, outcome, None, "call")  # type: ignore[arg-type]


def test_passed_tests_leave_no_logs(folder: Path) -> None:
    logs.pytest_runtest_logreport(report("passed"))
    logs.keep_logs(folder)
    assert not logs.KEPT.exists()


def test_failed_test_keeps_logs(folder: Path) -> None:
    logs.pytest_runtest_logreport(report("failed"))
    logs.keep_logs(folder)
    kept = [one for one in logs.KEPT.rglob("*") if one.is_file()]
    assert [(one.relative_to(logs.KEPT).as_posix(), one.read_text()) for one in kept] == [
        ("luminet-e2e-x/home/logs/web.log", "it broke")
    ]
