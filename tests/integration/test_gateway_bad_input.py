"""Row S2 at the gateway, in small: whatever is sent to it, it answers for no mistake of its own, and nothing stays."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from tests.gateway.bad_input import OF_EACH, Aftermath, fleet, suffered
from tests.gateway.bad_requests import KINDS, case
from tests.gateway.levels import faults, sockets
from tests.integration.test_gateway_process import Process, complete
from tests.support.waiting import wait_until

CASES, SEED = 2_000, 9


@dataclass(frozen=True, slots=True)
class Suffered:
    gateway: Process
    aftermath: Aftermath


@pytest.fixture(scope="module")
def found() -> Iterator[Suffered]:
    with fleet() as running:
        yield Suffered(running, suffered(running, CASES, seed=SEED))


def test_the_same_seed_makes_the_same_requests() -> None:
    assert [case(number, seed=SEED) for number in range(50)] == [case(number, seed=SEED) for number in range(50)]
    assert case(1, seed=SEED) != case(1, seed=SEED + 1)


def test_no_bad_request_is_answered_as_none_may_be(found: Suffered) -> None:
    run = found.aftermath.run
    assert run.complaints == []
    assert run.cases == CASES
    assert set(run.kinds) == set(KINDS)
    assert {200, 204, 400, 401, 403, 404, 405, 413, 415, 431} <= set(run.statuses)


def test_who_is_silent_or_drips_is_not_waited_for(found: Suffered) -> None:
    slow = [*found.aftermath.silent, *found.aftermath.heads, *found.aftermath.bodies]
    assert len(slow) == 3 * OF_EACH
    assert {(one.was_ended, one.statuses) for one in slow} == {(True, (408,))}


def test_slow_clients_were_there_meanwhile(found: Suffered) -> None:
    assert found.aftermath.amid.connections >= 3 * OF_EACH
    assert found.aftermath.amid.body_bytes > 0


def test_nothing_of_them_is_held(found: Suffered) -> None:
    after = found.aftermath.after
    assert (after.connections, after.body_bytes, after.running) == (0, 0, 0)
    port = urlsplit(found.gateway.url).port or 0
    wait_until(lambda: sockets(found.gateway.process.pid, port) == 0)


def test_it_goes_on_answering_and_its_log_tells_of_no_mistake(found: Suffered) -> None:
    assert complete(found.gateway.url).status_code == 200
    assert found.gateway.process.poll() is None
    assert faults(found.gateway.logged) == []
