"""A scheduler for beat that uses the monotonic clock.

Celery's own uses the wall clock: after it is set back by an hour, no task is due for an hour, so the fleet is not
swept, nothing is rolled up and no alert is sent.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.beat import ScheduleEntry, Scheduler

_BEGAN, _STEADY = datetime.now(UTC), time.monotonic()


def steady_now() -> datetime:
    """Return the wall clock's time at process start plus the time elapsed since, by the monotonic clock."""
    return _BEGAN + timedelta(seconds=time.monotonic() - _STEADY)


class SteadyEntry(ScheduleEntry):
    """A schedule entry whose schedule takes its time from `steady_now`, for itself and for the scheduler."""

    def __init__(self, *, last_run_at: datetime | None = None, **options: Any) -> None:
        super().__init__(last_run_at=last_run_at, **options)
        assert self.schedule is not None, f"{self.name} has no schedule"
        vars(self.schedule)["nowfun"] = steady_now  # its stubs lack it
        self.last_run_at = last_run_at or self.default_now()


class SteadyScheduler(Scheduler):
    """Keeps its state in memory: every entry is a sweep that may run late or twice."""

    Entry = SteadyEntry
