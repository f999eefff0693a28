"""Where tests listen: not where the kernel puts the near ends of connections, and never two of them at one place."""

import itertools

import pytest

from tests import ports

LINUX_HANDS_OUT = 32_768  # and above, unless told otherwise


def test_no_port_comes_from_the_range_connections_get_theirs_from() -> None:
    assert all(ports.FIRST <= ports.free_port() < ports.LAST < LINUX_HANDS_OUT for _ in range(50))


def test_no_port_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "own_share", lambda: range(20_000, 20_050))
    given = {ports.free_port() for _ in range(20)}
    assert len(given) == 20


def test_engines_and_their_sidecars_find_room_that_nobody_else_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_engine_port()
    beside = ports.engine_ports(first)
    assert len(beside) == 4
    monkeypatch.setattr(ports, "own_share", lambda: range(first, first + 30))
    assert not beside & {ports.free_port() for _ in range(10)}


def test_workers_side_by_side_share_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    for number in range(ports.SHARES):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        shares.append(ports.own_share())
    assert all(before.stop + ports.STATUS_PORT_FURTHER < after.start for before, after in itertools.pairwise(shares))
