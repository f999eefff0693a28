"""Check whether clocks agree."""

import time
from collections.abc import Iterator
from pathlib import Path

from controlplane.doctor.context import Context
from controlplane.doctor.database import answering_database
from controlplane.doctor.finding import Finding, NotExamined, broken, note, ok, warning
from controlplane.doctor.home import home_facts
from controlplane.doctor.views import answering_web
from controlplane.doctor.web import date_ahead

APART_SECONDS = 5.0  # as for an agent's clock
FAR_SECONDS = 30.0  # the lifetime of a command to an agent
SET_CLOCK = "set the clock (timedatectl set-ntp true, or chronyc makestep), on the one that is wrong"
SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


def clock(context: Context) -> Iterator[Finding]:
    """Compare this machine's clock with the database's or the control plane's."""
    if context.place.kind in ("stack", "processes"):
        yield clock_finding("the database", answering_database(context).ahead_seconds)
        return
    if context.place.kind == "agent":
        facts = home_facts(context)
        ahead = date_ahead(facts.get("date"), float(facts.get("asked_at") or 0.0))
        problem = "the control plane does not answer"
    else:
        ahead, problem = answering_web(context).ahead_seconds, "the control plane does not say its time"
    if ahead is None:
        raise NotExamined(problem)
    yield clock_finding("the control plane", ahead, exact=False)


def clock_finding(clock_owner: str, ahead_seconds: float, *, exact: bool = True) -> Finding:
    """Evaluate the difference between another clock and ours. `exact`: known more precisely than to a second."""
    distance = abs(ahead_seconds)
    if distance <= APART_SECONDS:
        precision = f"to {max(distance, 0.001):.3f} s" if exact else "to the second"
        return ok("clock", f"This machine's clock agrees with {clock_owner} {precision}")
    direction = "ahead of" if ahead_seconds > 0 else "behind"
    says = f"The clock of {clock_owner} is {_duration(distance)} {direction} this machine's"
    return (broken if distance > FAR_SECONDS else warning)("clock", says, SET_CLOCK)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def steady_clock(context: Context) -> Iterator[Finding]:
    source = SOURCE.read_text(encoding="utf-8").strip() if SOURCE.is_file() else ""
    source_note = f" ({source})" if source else ""
    if time.get_clock_info("monotonic").monotonic:
        yield ok("monotonic", f"There is a clock that nobody sets{source_note}: what expires does so on time")
    else:
        yield note("monotonic", f"This machine's steady clock can be set back{source_note}")
