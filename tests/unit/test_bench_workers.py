"""Processes that rows ask: their answers and nothing else, their last words when they fail, and always ended."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.bench import workers
from tests.bench.processes import NotStarted
from tests.bench.workers import NoAnswer, Worker, worker_running

DOUBLES = """
import sys
from tests.bench.answers import serve
def prepare():
    print("a library says hello")
    return {"name": "doubler"}, answer
def answer(question):
    print("a library says something")
    if question["number"] == 13:
        raise ValueError("not this one")
    if question["number"] == 99:
        import time; time.sleep(60)
    return {"twice": 2 * question["number"]}
serve(prepare)
"""
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{}', flush=True); time.sleep(60)"


@contextmanager
def running(code: str, **environment: str) -> Iterator[Worker]:
    with worker_running((sys.executable, "-c", code), environment) as worker:
        yield worker


def test_an_answer_is_what_was_answered_and_not_what_libraries_print() -> None:
    with running(DOUBLES) as worker:
        assert worker.facts == {"name": "doubler"}
        assert [worker.ask(number=number)["twice"] for number in (1, 21)] == [2, 42]


def test_one_that_fails_is_told_with_its_last_words() -> None:
    with running(DOUBLES) as worker:
        with pytest.raises(NoAnswer, match=r"ended with status 1:(.|\n)*ValueError: not this one"):
            worker.ask(number=13)
        with pytest.raises(NoAnswer, match="ended with status 1"):
            worker.ask(number=1)


def test_one_that_never_gets_ready_is_told_with_its_last_words() -> None:
    with pytest.raises(NotStarted, match=r"ended with status 1:\nno such package"), running("exit('no such package')"):
        pass


def test_one_that_takes_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(workers, "STOP_SECONDS", 0.1)
    with running(DOUBLES) as worker, pytest.raises(NoAnswer, match="did not answer within 0 s"):
        worker.ask(number=99)


@pytest.mark.parametrize("code", [DOUBLES, STUBBORN], ids=["willing", "stubborn"])
def test_it_is_ended_when_the_row_fails(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if code == STUBBORN:
        monkeypatch.setattr(workers, "STOP_SECONDS", 0.1)
    with pytest.raises(RuntimeError, match="row"), running(code) as worker:
        raise RuntimeError("the row failed")
    assert worker._process.poll() == (0 if code == DOUBLES else -9)


def test_the_callers_settings_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINET_DATABASE_URL", "postgresql://somebody@else/theirs")
    code = (
        "import json, os; print(json.dumps([name for name in os.environ if name in ('LUMINET_DATABASE_URL', 'OURS')]))"
    )
    with running(code, OURS="1") as worker:
        assert list(worker.facts) == ["OURS"]
