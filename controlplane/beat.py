"""Beat's schedule by a clock that nobody sets.

Celery's own goes by the wall clock: where that is set back by an hour, nothing is due for an hour, and the fleet is not
swept, nothing is rolled up and nobody is alerted meanwhile.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.beat import ScheduleEntry, Scheduler

_BEGAN, _STEADY = datetime.now(UTC), time.monotonic()


def steady_now() -> datetime:
    """The wall clock as it was when this process began, and since then as time really went by."""
    return _BEGAN + timedelta(seconds=time.monotonic() - _STEADY)


class SteadyEntry(ScheduleEntry):
    """Its schedule says what time it is, to itself and to the scheduler."""

    def __init__(self, *, last_run_at: datetime | None = None, **named: Any) -> None:
        super().__init__(last_run_at=last_run_at, **named)
        assert self.schedule is not None, f"{self.name} has no schedule"
        vars(self.schedule)["nowfun"] = steady_now  # its stubs lack it
        self.last_run_at = last_run_at or self.default_now()


class SteadyScheduler(Scheduler):
    """In memory: every entry is a sweep that may run late or twice."""

    Entry = SteadyEntry
