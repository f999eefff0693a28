import asyncio
import json
import os
import signal
import stat
import sys
from pathlib import Path

import psutil
import pytest

from controlplane.common.health import NotReady
from controlplane.stack.child import HOPELESS_STARTS, Child, Service, backoff_seconds, describe_exit
from controlplane.stack.errors import ChildFailed
from controlplane.stack.leftovers import is_alive
from controlplane.stack.supervisor import Reporter, Supervisor, stop_order
from tests.support.waiting import wait_until_async

SLEEP = (sys.executable, "-c", "import time; print('hello', flush=True); time.sleep(60)")
DEAF = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)",
)


def supervise(tmp_path: Path, *services: Service) -> tuple[Supervisor, list[tuple[str, str]]]:
    said: list[tuple[str, str]] = []
    reporter = Reporter(
        say=lambda name, line: said.append((name, line)), state=lambda child: None, status_file=tmp_path / "stack.json"
    )
    return Supervisor(services, logs=tmp_path, reporter=reporter), said


async def kill_and_see_it_return(child: Child) -> None:
    first = child.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await wait_until_async(lambda: child.pid not in (None, first) and child.state == "ready")


def test_nothing_stops_before_what_needs_it() -> None:
    services = [
        Service("postgres", ()),
        Service("redis", ()),
        Service("web", (), needs=("postgres", "redis")),
        Service("agent", (), needs=("web",)),
        Service("install", (), needs=("agent",), is_job=True),
    ]
    assert stop_order(services) == [["agent", "install"], ["web"], ["postgres", "redis"]]


def test_services_that_need_each_other_are_an_error() -> None:
    with pytest.raises(ValueError, match="circle: a, b"):
        stop_order([Service("a", (), needs=("b",)), Service("b", (), needs=("a",))])


def test_the_wait_before_a_restart_grows_and_ends() -> None:
    assert [backoff_seconds(n) for n in (1, 2, 3, 4, 20)] == [0.0, 0.5, 1.0, 2.0, 30.0]


def test_an_exit_is_described_in_words() -> None:
    assert describe_exit(3) == "status 3"
    assert describe_exit(-9) == "signal SIGKILL"


async def test_a_killed_child_comes_back_with_a_new_process(tmp_path: Path) -> None:
    supervisor, said = supervise(tmp_path, Service("one", SLEEP, check=lambda: None))
    await supervisor.start()
    child = supervisor.children["one"]
    await kill_and_see_it_return(child)
    await supervisor.stop()
    assert ("one", "ended with signal SIGKILL; starting again in 0.0 s") in said
    assert child.state == "stopped"


async def test_a_service_waits_for_what_it_needs(tmp_path: Path) -> None:
    order: list[str] = []
    slow = iter([False, False, True])

    def slow_check() -> None:
        if not next(slow):
            raise NotReady("not yet")
        order.append("store")

    store = Service("store", SLEEP, check=slow_check)
    web = Service("web", SLEEP, check=lambda: order.append("web"), needs=("store",))
    supervisor, _ = supervise(tmp_path, web, store)
    await supervisor.start()
    await supervisor.stop()
    assert order[:2] == ["store", "web"]


async def test_a_child_that_never_works_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    hopeless = Service("bad", (sys.executable, "-c", "print('no such thing'); raise SystemExit(2)"), check=lambda: None)
    attempts: list[int] = []

    def never() -> None:
        attempts.append(1)
        raise NotReady("never")

    supervisor, said = supervise(tmp_path, Service("bad", hopeless.command, check=never))
    with pytest.raises(ExceptionGroup) as caught:
        await supervisor.start()
    await supervisor.stop()
    failed = caught.value.exceptions[0]
    assert isinstance(failed, ChildFailed)
    assert "bad could not start: no such thing. Its log is" in str(failed)
    assert len([line for name, line in said if line == "no such thing"]) == HOPELESS_STARTS


async def test_a_failed_job_stops_the_start(tmp_path: Path) -> None:
    job = Service("job", (sys.executable, "-c", "raise SystemExit('no room')"), is_job=True)
    supervisor, _ = supervise(tmp_path, job, Service("web", SLEEP, check=lambda: None, needs=("job",)))
    with pytest.raises(ExceptionGroup) as caught:
        await supervisor.start()
    await supervisor.stop()
    assert "job could not start: no room" in str(caught.value.exceptions[0])


async def test_a_child_that_ignores_the_request_to_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.stack.supervisor.STOP_SECONDS", 0.3)
    supervisor, said = supervise(tmp_path, Service("deaf", DEAF, check=lambda: None))
    await supervisor.start()
    await wait_until_async(lambda: ("deaf", "deaf") in said)
    process = supervisor.children["deaf"].process
    await supervisor.stop()
    assert process is not None
    assert process.returncode == -signal.SIGKILL


async def test_status_lists_what_runs_and_not_what_is_done(tmp_path: Path) -> None:
    job = Service("job", (sys.executable, "-c", ""), is_job=True)
    supervisor, _ = supervise(tmp_path, job, Service("web", SLEEP, check=lambda: None, needs=("job",), port=8000))
    await supervisor.start()
    rows = json.loads((tmp_path / "stack.json").read_text())
    await supervisor.stop()
    assert [(row["name"], row["state"], row["port"]) for row in rows] == [("web", "ready", 8000)]
    assert stat.S_IMODE((tmp_path / "stack.json").stat().st_mode) == 0o600


async def test_an_endless_line_is_dropped_and_the_next_one_is_kept(tmp_path: Path) -> None:
    script = "print('x' * 3_000_000); print('after', flush=True)"
    supervisor, said = supervise(tmp_path, Service("job", (sys.executable, "-c", script), is_job=True))
    await supervisor.start()
    await supervisor.stop()
    assert said[-1] == ("job", "after")


async def test_a_child_whose_own_child_lives_on_is_restarted_and_takes_it_along(tmp_path: Path) -> None:
    """The grandchild holds the pipe, so the end of the pipe must not be what tells that the child is gone."""
    grandchild = f"import subprocess; subprocess.Popen({[*SLEEP]!r}); "
    script = grandchild + "import os, time; print('pid', os.getpid(), flush=True); time.sleep(60)"
    supervisor, _ = supervise(tmp_path, Service("one", (sys.executable, "-c", script), check=lambda: None))
    await supervisor.start()
    child = supervisor.children["one"]
    first = child.pid
    assert first is not None
    await wait_until_async(lambda: psutil.Process(first).children())
    (orphan,) = psutil.Process(first).children()
    await kill_and_see_it_return(child)
    assert not is_alive(orphan.pid)
    await wait_until_async(lambda: psutil.Process(child.pid).children())
    (orphan,) = psutil.Process(child.pid).children()
    await supervisor.stop()
    assert not is_alive(orphan.pid)


async def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    supervisor, _ = supervise(tmp_path, Service("one", ("/no/such/program",), check=lambda: None))
    with pytest.raises(ExceptionGroup) as caught:
        await supervisor.start()
    await supervisor.stop()
    assert "/no/such/program: No such file or directory" in str(caught.value.exceptions[0])


async def test_a_health_check_that_breaks_counts_as_not_ready_and_is_asked_again(tmp_path: Path) -> None:
    answers = iter([ValueError("half an answer"), KeyError("x"), None])

    def check() -> None:
        if answer := next(answers, None):
            raise answer

    supervisor, _ = supervise(tmp_path, Service("one", SLEEP, check=check))
    await supervisor.start()
    assert supervisor.children["one"].state == "ready"
    await supervisor.stop()


async def test_a_full_disk_keeps_nothing_from_starting_again_or_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, said = supervise(tmp_path, Service("one", SLEEP, check=lambda: None))
    await supervisor.start()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("controlplane.stack.supervisor.write_private", full)
    child = supervisor.children["one"]
    await kill_and_see_it_return(child)
    await supervisor.stop()
    assert child.pid is None
    assert [line for name, line in said if "No space left" in line] == [
        f"cannot write {tmp_path / 'stack.json'}: No space left on device"
    ]


@pytest.mark.parametrize("turns", range(0, 12, 2))
async def test_a_child_that_is_stopped_while_it_starts_does_not_stay(tmp_path: Path, turns: int) -> None:
    supervisor, _ = supervise(tmp_path, Service("one", SLEEP, check=lambda: None))
    starting = asyncio.create_task(supervisor.start())
    child = supervisor.children["one"]
    for _ in range(turns):
        await asyncio.sleep(0)
    await supervisor.stop()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert child.process is None or not is_alive(child.process.pid)
