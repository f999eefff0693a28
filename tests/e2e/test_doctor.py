"""`luminet doctor` beside a stack as `make up` starts it, and where a start fails."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.stack import Stack, end, is_fleet_well, luminet, start
from tests.support.ports import free_port
from tests.support.waiting import wait_until


def told(home: Path, *arguments: str, **more: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = luminet("doctor", "--json", "--seconds", "50", *arguments, home=home, **more)
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, {one["name"]: one for one in json.loads(done.stdout)}


def test_a_stack_that_runs_is_well_whatever_the_terminals_own_settings_are_and_a_part_that_hangs_is_named(
    stack: Stack,
) -> None:
    wait_until(lambda: is_fleet_well(stack), "a fleet that is well")
    found = wait_well(stack)
    assert f"{stack.port} (web)" in found["ports"]["says"]
    assert found["files"]["status"] == found["pulse"]["status"] == "ok"
    demo = stack.home / "demo.json"
    demo.chmod(0o644)
    try:
        assert told(stack.home, "permissions")[1]["files"]["do"] == f"chmod 600 {demo}"
    finally:
        demo.chmod(0o600)
    with _hanging(stack, "redis"):
        status, found = told(stack.home, "reachability")
    assert (status, found["redis"]["status"], found["database"]["status"]) == (1, "broken", "ok")
    wait_until(lambda: is_fleet_well(stack), "a fleet that is well again")


def wait_well(stack: Stack) -> dict[str, dict[str, Any]]:
    """All that it looked at, once it finds nothing wrong: on a busy machine the database is slow, and it says so."""
    seen: list[tuple[int, dict[str, dict[str, Any]]]] = []

    def is_well() -> bool:
        seen.append(told(stack.home))
        return seen[-1][0] == 0 and complaints(seen[-1][1]) == []

    wait_until(is_well, "well, says the doctor", details=lambda: str(complaints(seen[-1][1])))
    return seen[-1][1]


def complaints(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in found.values() if one["status"] in ("broken", "warning")]


def test_where_no_stack_runs_it_says_how_to_start_one(home: Path) -> None:
    status, found = told(home, "reachability", "fleet")
    assert (status, found["stack"]["do"]) == (1, "make up")


@contextlib.contextmanager
def _hanging(stack: Stack, part: str) -> Iterator[None]:
    pid = stack.status()[part]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_port_that_somebody_else_has_is_told_with_who_it_is(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, found = told(tmp_path / "home", "ports", LUMINET_WEB_PORT=str(port))
    assert status == 1
    assert f"Port {port}, which web wants, is held by" in found["ports"]["says"]
    assert f"(process {os.getpid()})" in found["ports"]["says"]


def test_a_start_that_fails_for_a_reason_it_cannot_tell_leads_to_the_doctor(home: Path) -> None:
    away = f"postgresql://luminet:x@127.0.0.1:{free_port()}/luminet"
    stack = start(home, free_port(), LUMINET_DATABASE_URL=away)
    try:
        assert stack.process.wait(60) != 0
        wait_until(lambda: "luminet doctor" in stack.said, "led there", details=lambda: stack.said)
    finally:
        end(stack)
