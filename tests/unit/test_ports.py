"""Where tests listen: not where the kernel puts the near ends of connections, and never two of them at one place."""

import subprocess
import sys

import pytest

from tests.suite.files import CHECKOUT
from tests.support import ports

LINUX_HANDS_OUT = 32_768  # and above, unless told otherwise


def only_from(monkeypatch: pytest.MonkeyPatch, some: range) -> None:
    monkeypatch.setattr(ports, "FIRST", some.start)
    monkeypatch.setattr(ports, "LAST", some.stop)


def test_no_port_comes_from_the_range_connections_get_theirs_from() -> None:
    assert all(ports.FIRST <= ports.free_port() < ports.LAST < LINUX_HANDS_OUT for _ in range(50))


def test_no_port_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    only_from(monkeypatch, range(20_000, 20_050))
    given = {ports.free_port() for _ in range(20)}
    assert len(given) == 20


def test_engines_and_their_sidecars_find_room_that_nobody_else_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_engine_port()
    beside = ports.engine_ports(first)
    assert len(beside) == 4
    only_from(monkeypatch, range(first, first + 30))
    assert not beside & {ports.free_port() for _ in range(10)}


TAKE = "from tests.support import ports; print(ports.free_port(), flush=True); input()"


def test_no_port_is_given_to_two_processes_though_nobody_listens_yet() -> None:
    command = [sys.executable, "-c", TAKE]
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        taken = int(other.stdout.readline())
        assert not ports.reserve(taken)
        other.stdin.write("\n")
        assert other.wait() == 0
    assert ports.reserve(taken)
    assert not ports.reserve(taken)
