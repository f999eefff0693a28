"""When an alert begins and ends. Pure: what is measured comes in, what follows goes out, and time is an argument.

A value beyond the threshold makes a state `pending`; beyond it for `for_seconds` on end, `firing`. That ends when the
value has been back beyond `clears_at`, which is further back than the threshold, for `clear_for_seconds` on end. What
lies between the two neither begins nor ends anything. Only time over which something was known counts: without data,
and while nobody evaluated, a state stays what it was, and gets no older.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from controlplane.alerts.definitions import Comparison

Phase = Literal["ok", "pending", "firing"]
Event = Literal["fired", "resolved"]
LONGEST_STEP_SECONDS = 60.0  # evaluations come every 15 s: what is further apart was not watched in between


@dataclass(frozen=True, slots=True)
class Rule:
    """What evaluation needs to know of a rule."""

    comparison: Comparison
    threshold: float
    clears_at: float
    for_seconds: float
    clear_for_seconds: float
    least_prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """What was measured: None where nothing is known. `prompt_tokens`: out of how many, where that matters."""

    value: float | None
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """Of one rule and one subject. `seconds`: for how long it has been on its way to the next phase; None: it is not.
    `value`: what was last known."""

    phase: Phase = "ok"
    since: datetime | None = None  # when the value went beyond the threshold
    seconds: float | None = None
    at: datetime | None = None
    has_data: bool = False
    value: float | None = None


OK = State()
UNKNOWN = Reading(None)


def evaluate(rule: Rule, state: State, reading: Reading, now: datetime) -> tuple[State, Event | None]:
    """The next state, and what has happened by it, if anything."""
    value = known_value(rule, reading)
    if value is None:
        return replace(state, at=now, has_data=False), None
    step = _step(state, now)
    seen = replace(state, at=now, has_data=True, value=value)
    return _firing(rule, seen, value, step) if state.phase == "firing" else _waiting(rule, seen, value, step, now)


def known_value(rule: Rule, reading: Reading) -> float | None:
    """Too little to judge by is as good as nothing."""
    return None if reading.prompt_tokens < rule.least_prompt_tokens else reading.value


def is_beyond(rule: Rule, value: float) -> bool:
    return value > rule.threshold if rule.comparison == "above" else value < rule.threshold


def is_clear(rule: Rule, value: float) -> bool:
    return value <= rule.clears_at if rule.comparison == "above" else value >= rule.clears_at


def _waiting(rule: Rule, state: State, value: float, step: float, now: datetime) -> tuple[State, Event | None]:
    if not is_beyond(rule, value):
        return replace(state, phase="ok", since=None, seconds=None), None
    since, seconds = state.since or now, _longer(state, step)
    if seconds < rule.for_seconds:
        return replace(state, phase="pending", since=since, seconds=seconds), None
    return replace(state, phase="firing", since=since, seconds=None), "fired"


def _firing(rule: Rule, state: State, value: float, step: float) -> tuple[State, Event | None]:
    if not is_clear(rule, value):
        return replace(state, seconds=None), None
    seconds = _longer(state, step)
    if seconds < rule.clear_for_seconds:
        return replace(state, seconds=seconds), None
    return replace(state, phase="ok", since=None, seconds=None), "resolved"


def _longer(state: State, step: float) -> float:
    """It begins when it is first seen: of the time before, the evaluation before said otherwise."""
    return 0.0 if state.seconds is None else state.seconds + step


def _step(state: State, now: datetime) -> float:
    """Seconds since the evaluation before, over which what it saw is taken to have lasted."""
    if state.at is None or not state.has_data:
        return 0.0
    return min(max((now - state.at).total_seconds(), 0.0), LONGEST_STEP_SECONDS)
