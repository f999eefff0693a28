"""What sends a canary back, as a form: each guard in the unit people say it in, empty where it is not compared.

Pure."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from controlplane.dashboard.policies.fields import Typed, Unreadable, amount_read, first, number_text
from controlplane.rollouts.spec import Guards

SHOWN: Final = "guards"  # in a form that shows them: a tick that it does not send is taken away
INTEGRITY: Final = "guard-integrity"
LEAST: Final = "guard-requests"
DEFAULT: Final = Guards()
MOST_REQUESTS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Guard:
    """A bound as it is typed in percent. `most`: of a hundred."""

    key: str
    name: str
    label: str
    unit: str
    hint: str
    most: int


GUARDS: Final = (
    Guard("guard-hit", "hit_ratio_drop", "Hit rate may be lower by", "points", "its own cold start is left out", 100),
    Guard("guard-ttft", "ttft_p95_rise", "First token’s p95 may be longer by", "%", "of what the others take", 10_000),
    Guard("guard-errors", "error_ratio", "Requests that fail may be more by", "points", "of all requests", 100),
)


@dataclass(frozen=True, slots=True)
class GuardField:
    """One input, with what was typed and what is wrong with it."""

    key: str
    label: str
    value: str
    unit: str
    hint: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GuardForm:
    fields: tuple[GuardField, ...]
    checks_integrity: bool
    guards: Guards | None  # None: cannot be read

    @property
    def problems(self) -> dict[str, str]:
        return {one.key: one.problem for one in self.fields if one.problem}


def guard_form(typed: Typed, *, is_judged: bool) -> GuardForm:
    """As it was sent, or as it is offered. What nobody compares by is kept as typed, and not judged."""
    shares = [_share_field(one, typed) for one in GUARDS]
    least = _least_field(typed)
    integrity = INTEGRITY in typed if SHOWN in typed else DEFAULT.integrity
    fields = [field for field, _ in (*shares, least)]
    if not is_judged:
        unjudged = tuple(GuardField(one.key, one.label, one.value, one.unit, one.hint) for one in fields)
        return GuardForm(unjudged, integrity, DEFAULT)
    if any(one.problem for one in fields):
        return GuardForm(tuple(fields), integrity, None)
    said = {one.name: value for one, (_, value) in zip(GUARDS, shares, strict=True)}
    guards = Guards(**said, integrity=integrity, min_requests=least[1] or DEFAULT.min_requests)
    return GuardForm(tuple(fields), integrity, guards)


def _share_field(one: Guard, typed: Typed) -> tuple[GuardField, float | None]:
    default: float | None = getattr(DEFAULT, one.name)
    told = first(typed, one.key, "" if default is None else number_text(100 * default))
    value, problem = None, ""
    try:
        value = _share(one, told)
    except Unreadable as error:
        problem = str(error)
    return GuardField(one.key, one.label, told, one.unit, f"{one.hint}; empty: not compared", problem), value


def _share(one: Guard, told: str) -> float | None:
    if not told:
        return None
    amount = amount_read(told.removesuffix("%").rstrip(), f"bound: write {one.unit}, as 5 or 2.5, or nothing")
    if amount > one.most:
        raise Unreadable(f"{number_text(float(amount))} {one.unit} is more than {one.most:,}, the most there is.")
    return float(amount / 100)


def _least_field(typed: Typed) -> tuple[GuardField, int | None]:
    told = first(typed, LEAST, str(DEFAULT.min_requests))
    value, problem = None, ""
    try:
        value = _least(told)
    except Unreadable as error:
        problem = str(error)
    hint = f"on either side, before anything is decided; empty: {DEFAULT.min_requests}"
    return GuardField(LEAST, "Compared from", told, "requests", hint, problem), value


def _least(told: str) -> int | None:
    if not told:
        return None
    amount = amount_read(told, "number of requests: write a whole one, as 20")
    if amount != int(amount) or not Decimal(1) <= amount <= MOST_REQUESTS:
        raise Unreadable(f"{number_text(float(amount))} is no whole number from 1 to {MOST_REQUESTS:,}.")
    return int(amount)
