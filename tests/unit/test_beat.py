"""Beat goes by a clock that nobody sets."""

from datetime import UTC, datetime, timedelta

import pytest

from controlplane import beat
from controlplane.beat import SteadyScheduler
from controlplane.celery import app

NOON = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)


class Machine:
    """Its steady clock goes on, its wall clock is whatever somebody makes of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steady, self.wall = 0.0, NOON
        monkeypatch.setattr(beat, "steady_now", lambda: NOON + timedelta(seconds=self.steady))
        monkeypatch.setattr(app, "now", lambda: self.wall)

    def goes_on(self, seconds: float) -> None:
        self.steady += seconds
        self.wall += timedelta(seconds=seconds)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def scheduler_of(sent: list[str], seconds: float) -> SteadyScheduler:
    made = SteadyScheduler(app, lazy=True)
    made.add(name="sweep", task="rollouts.sweep", schedule=seconds)
    vars(made)["producer"] = None  # nothing goes to a broker here
    vars(made)["apply_entry"] = lambda entry, producer=None: sent.append(entry.task)
    return made


def ticked(scheduler: SteadyScheduler) -> None:
    while scheduler.tick() == 0:
        pass


@pytest.mark.parametrize("hours", [-24, -1, 1, 24])
def test_a_wall_clock_that_is_set_neither_holds_the_schedule_up_nor_hurries_it(machine: Machine, hours: int) -> None:
    sent: list[str] = []
    scheduler = scheduler_of(sent, 2.0)
    ticked(scheduler)
    machine.goes_on(2.1)
    ticked(scheduler)
    assert len(sent) == 1
    machine.wall += timedelta(hours=hours)
    machine.goes_on(1.0)
    ticked(scheduler)
    assert len(sent) == 1, "not before its time"
    machine.goes_on(1.1)
    ticked(scheduler)
    assert len(sent) == 2, "and not after it"


def test_the_steady_clock_begins_as_the_wall_clock_is() -> None:
    assert abs(beat.steady_now() - datetime.now(UTC)) < timedelta(seconds=5)
    assert beat.steady_now().tzinfo is UTC


def test_it_is_what_beat_runs_with_and_all_that_is_sent_goes_by_it() -> None:
    assert app.conf.beat_scheduler == "controlplane.beat:SteadyScheduler"
    entries = SteadyScheduler(app).schedule
    assert entries.keys() >= app.conf.beat_schedule.keys()
    assert all(vars(entry.schedule)["nowfun"] is beat.steady_now for entry in entries.values())
