"""Engines that a killed sidecar left behind: looked after if they are what is asked for, ended if not.

What stands for an engine here is a process that listens at its socket: all that is known of one before it is asked.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine_agent.sidecar import engine_child
from engine_agent.sidecar.engine_child import EngineChild, peer_of
from tests.support.waiting import wait_until_async

LISTEN = "import os,socket,sys,time;p=sys.argv[1];s=socket.socket(socket.AF_UNIX);os.path.exists(p) and os.remove(p)"
LISTEN += ";s.bind(p);s.listen(9);time.sleep(60)"


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is short
        yield Path(folder) / "admin.sock"


def command(path: Path, *more: str) -> list[str]:
    return [sys.executable, "-c", LISTEN, str(path), *more]


async def _looked_after(child: EngineChild, path: Path, found: Callable[[int | None], bool]) -> None:
    stopping = asyncio.Event()
    running = asyncio.create_task(child.run(stopping))
    try:
        await wait_until_async(lambda: found(peer_of(path)))
    finally:
        stopping.set()
        await running


@pytest.fixture
def old(path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """By a sidecar that was killed: what its start wrote down is there."""
    process = subprocess.Popen(command(path))
    try:
        asyncio.run(wait_until_async(lambda: peer_of(path) == process.pid))
        child = EngineChild(command(path), path, secret=b"s")
        child._digest_file.write_bytes(child._digest)
        yield process
    finally:
        process.kill()
        process.wait()


def test_the_one_that_is_asked_for_goes_on(path: Path, old: "subprocess.Popen[bytes]") -> None:
    why: list[str] = []
    child = EngineChild(command(path), path, secret=b"s", tell=why.append)
    asyncio.run(_looked_after(child, path, lambda peer: bool(why)))
    assert old.wait(10) == -15, "ended with its sidecar"
    assert why == ["the engine is being started"]


@pytest.mark.parametrize(("options", "secret"), [(("--pool", "2GiB"), b"s"), ((), b"another")])
def test_one_that_was_started_with_something_else_is_ended_for_the_one_that_is_asked_for(
    path: Path, old: "subprocess.Popen[bytes]", options: tuple[str, ...], secret: bytes
) -> None:
    child = EngineChild(command(path, *options), path, secret=secret)
    asyncio.run(_looked_after(child, path, lambda peer: peer not in (None, old.pid)))
    assert old.wait(10) == -15


def test_one_of_another_version_is_ended_for_this_ones(
    path: Path, old: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_child, "luminet_version", lambda: "0.0.1")
    child = EngineChild(command(path), path, secret=b"s")
    asyncio.run(_looked_after(child, path, lambda peer: peer not in (None, old.pid)))
    assert old.wait(10) == -15


def test_why_an_engine_does_not_answer_is_told(path: Path) -> None:
    why: list[str] = []
    child = EngineChild([sys.executable, "-c", "raise SystemExit(3)"], path, tell=why.append)
    asyncio.run(_looked_after(child, path, lambda peer: len(why) > 1))
    assert "ended with status 3" in why[1]


def leaves(path: Path, words: str) -> list[str]:
    """An engine that ends, and says why in its state folder."""
    written = f"import pathlib; pathlib.Path({str(path.with_name('last-words'))!r}).write_text({words!r})"
    return [sys.executable, "-c", f"{written}; raise SystemExit(1)"]


def test_what_an_engine_said_last_is_told_in_one_line(path: Path) -> None:
    why: list[str] = []
    child = EngineChild(leaves(path, "no such\nmodel"), path, tell=why.append)
    asyncio.run(_looked_after(child, path, lambda peer: len(why) > 1))
    assert why[1] == "the engine ended with status 1 and is started again after 0.5 s: no such model"


def test_what_an_engine_of_before_said_is_not_told_of_the_next(path: Path) -> None:
    path.with_name("last-words").write_text("of before")
    why: list[str] = []
    child = EngineChild([sys.executable, "-c", "raise SystemExit(3)"], path, tell=why.append)
    asyncio.run(_looked_after(child, path, lambda peer: len(why) > 1))
    assert "of before" not in why[1]


def test_an_engine_that_was_killed_is_told_of_as_such(path: Path) -> None:
    why: list[str] = []
    child = EngineChild([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], path, tell=why.append)
    asyncio.run(_looked_after(child, path, lambda peer: len(why) > 1))
    assert "was ended by SIGKILL, as the system does where memory runs out" in why[1]


@pytest.mark.parametrize(
    ("has_answered", "waits"),
    [(False, ["0.05", "0.1", "0.2"]), (True, ["0.05", "0.05", "0.05"])],
    ids=["never", "once"],
)
def test_an_engine_that_takes_long_to_fail_waits_longer_each_time_unless_it_served(
    path: Path, monkeypatch: pytest.MonkeyPatch, has_answered: bool, waits: list[str]
) -> None:
    monkeypatch.setattr(engine_child, "RESTART_SECONDS", (0.05, 30.0))
    monkeypatch.setattr(engine_child, "WELL_SECONDS", 0.0)
    why: list[str] = []
    command = [sys.executable, "-c", "raise SystemExit(1)"]
    child = EngineChild(command, path, tell=why.append, has_answered=lambda: has_answered)
    asyncio.run(_looked_after(child, path, lambda peer: len(why) > 3))
    assert [line.split("after ")[1].split(" s")[0] for line in why[1:4]] == waits
