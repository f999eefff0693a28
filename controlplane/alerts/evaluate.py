"""Decides when an alert begins and ends. Pure: takes readings, returns states and events; time is an argument.

A value beyond the threshold makes a state `pending`; after `for_seconds` without a break it is `firing`. It ends when
the value has been back beyond `clears_at` for `clear_for_seconds` without a break; `clears_at` is further back than the
threshold. A value between the two neither begins nor ends anything. Only time with a known value counts: without data
or evaluations, a state stays as it is and gets no older.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from controlplane.alerts.definitions import Comparison

Phase = Literal["ok", "pending", "firing"]
Event = Literal["fired", "resolved"]
LONGEST_STEP_SECONDS = 60.0  # evaluations run every 15 s; a longer gap was not observed


@dataclass(frozen=True, slots=True)
class Rule:
    """The fields of a rule that evaluation needs."""

    comparison: Comparison
    threshold: float
    clears_at: float
    for_seconds: float
    clear_for_seconds: float
    least_prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """A measured value; None if it is unknown. `prompt_tokens`: how many it is based on, where that matters."""

    value: float | None
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The state of one rule for one subject.

    `seconds`: how long it has been on its way to the next phase, or None if it is not. `value`: the last known one.
    """

    phase: Phase = "ok"
    since: datetime | None = None  # when the value went beyond the threshold
    seconds: float | None = None
    at: datetime | None = None
    has_data: bool = False
    value: float | None = None


OK = State()
UNKNOWN = Reading(None)


def evaluate(rule: Rule, state: State, reading: Reading, now: datetime) -> tuple[State, Event | None]:
    """Return the next state, and the event of this change, if any."""
    value = known_value(rule, reading)
    if value is None:
        return replace(state, at=now, has_data=False), None
    step = _step(state, now)
    seen = replace(state, at=now, has_data=True, value=value)
    return _firing(rule, seen, value, step) if state.phase == "firing" else _waiting(rule, seen, value, step, now)


def known_value(rule: Rule, reading: Reading) -> float | None:
    """Return the value, or None if it is based on too few prompt tokens."""
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
    """Return the seconds on the way to the next phase. They start at 0: the previous evaluation saw the opposite."""
    return 0.0 if state.seconds is None else state.seconds + step


def _step(state: State, now: datetime) -> float:
    """Return the seconds since the previous evaluation. Its value is taken to have lasted that long."""
    if state.at is None or not state.has_data:
        return 0.0
    return min(max((now - state.at).total_seconds(), 0.0), LONGEST_STEP_SECONDS)
