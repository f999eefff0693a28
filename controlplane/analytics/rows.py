"""Validates usage reports row by row. Sound rows are counted; the others are refused with a reason. Pure.

A row is refused alone, by field and problem; the other rows of its report are kept. Nothing here raises, whatever an
agent sends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, Struct, defstruct
from msgspec.structs import astuple

from controlplane.analytics.columns import BLOCK_COLUMNS, COUNT_BITS, MISSED_COLUMN
from engine_agent.contracts.protocol import CANARIES, MalformedMessage
from engine_agent.contracts.typed import T, typed
from engine_agent.contracts.usage import CODES, COUNTS, MINUTE_SECONDS, Kind
from tenants.policy import KvDtype

MOST: Final = 2**40  # of anything counted, in one row: more tokens than any engine computes in its life
MOST_TIMES: Final = 2**31  # of one code in one row; fits into COUNT_BITS
MOST_TOTAL: Final = 2**62  # of what an engine counts since its boot
MOST_BYTES: Final = 2**50  # in a cache: more than any machine has
MOST_MODEL_CHARACTERS: Final = 200
OLDEST_SECONDS: Final = 48 * 3600
AHEAD_SECONDS: Final = 5 * 60
SET_BACK_SECONDS: Final = 48 * 3600  # the control plane's clock may be set back by this without losing requests
HELD: Final = ("resident_bytes", "host_bytes", *BLOCK_COLUMNS)  # of a namespace on an engine, now
POOL: Final = ("capacity_bytes", "used_bytes", "evictable_bytes")
TOTALS: Final = ("requests", "prompt_tokens", "cached_tokens")
# The isolation canary's tenants are stored under ids that no organisation and no namespace has.
CANARY_NUMBERS: Final[Mapping[str, int]] = {name: -2 - index for index, name in enumerate(CANARIES)}
PROBE: Final = "probe"
NO_ROW: Final = -1  # the row of a problem with the report itself
LONGEST_SHOWN: Final = 60

_PROMPT, _CACHED = COUNTS.index("prompt_tokens"), COUNTS.index("cached_tokens")
_NO_BLOCKS: Final = (0,) * len(BLOCK_COLUMNS)
Tokens = Annotated[int, Meta(ge=0, le=MOST)]
Size = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
_Total = Annotated[int, Meta(ge=0, le=MOST_TOTAL)]
Owners = Mapping[str, int]  # organisation by namespace id, as reported


class Key(NamedTuple):
    """The subject of a row. With its agent, it identifies a series."""

    organisation: int
    namespace: int
    model: str
    kv_dtype: str
    kind: str


class Counted(NamedTuple):
    """A sound row. `added` is in the order of ADDED; `times` as they are stored."""

    key: Key
    minute: int
    added: list[int]
    times: list[int]


class Problem(NamedTuple):
    field: str
    problem: str


@dataclass(frozen=True, slots=True)
class Judge:
    """The checks of one agent's rows, with the accepted minutes and the owner of each namespace."""

    oldest: int
    newest: int
    owners: Owners
    foreign: frozenset[str] = frozenset()  # namespaces that this agent must not serve

    def row(self, reported_row: Any) -> Counted | Problem:
        try:
            row = typed(reported_row, _Row, root="row")
            counts = astuple(typed(row.counts, _Counts, "counts"))
            missed = astuple(typed(row.missed, _Missed, "missed"))
        except MalformedMessage as error:
            return Problem(error.field, error.problem)
        problem = self._about_problem(row) or _sum_problem(counts, missed)
        if problem is not None:
            return problem
        owner, namespace = self.owners[row.namespace], namespace_number(row.namespace)
        added = [*counts, *missed, *_NO_BLOCKS]
        times = [code << COUNT_BITS | count for code, count in row.times]
        return Counted(Key(owner, namespace, row.model, row.kv_dtype, row.kind), row.minute, added, times)

    def _about_problem(self, row: "_Row") -> Problem | None:
        if row.minute % MINUTE_SECONDS:
            return Problem("minute", f"must be unix seconds at which a minute begins, found {shown(row.minute)}")
        if problem := self.time_problem("minute", row.minute, set_back=SET_BACK_SECONDS):
            return problem
        if problem := self.namespace_problem("namespace", row.namespace):
            return problem
        is_canary = row.namespace in CANARY_NUMBERS
        if row.organisation != (row.namespace if is_canary else str(self.owners[row.namespace])):
            return Problem("organisation", f"must be the namespace's, found {shown(row.organisation)}")
        if is_canary and row.kind != PROBE:
            return Problem("kind", f"must be {PROBE} where nobody is a customer, found {shown(row.kind)}")
        return None

    def counted_in(self, minute: int) -> int:
        """Return the minute in which requests count.

        The control plane's clock dates requests. If it was set back before they were reported, their minute is in the
        future, and they count in the current one.
        """
        return minute if minute <= self.newest else minute_of(self.newest - AHEAD_SECONDS)

    def time_problem(self, field: str, at: float, *, set_back: int = 0) -> Problem | None:
        """Return what is wrong with a time. `set_back`: seconds that its clock may have been set back since."""
        if at < self.oldest:
            return Problem(field, f"is older than {OLDEST_SECONDS // 3600} hours: {shown(at)}")
        if at > self.newest + set_back:
            return Problem(field, f"is more than {(AHEAD_SECONDS + set_back) // 60:,} minutes ahead: {shown(at)}")
        return None

    def namespace_problem(self, field: str, namespace: Any) -> Problem | None:
        if type(namespace) is not str or namespace not in self.owners:
            return Problem(field, f"there is no namespace {shown(namespace)}")
        if namespace in self.foreign:
            return Problem(field, f"is not this agent's to serve: {shown(namespace)}")
        return None


def judge(now: datetime, owners: Owners, foreign: Iterable[str] = ()) -> Judge:
    seconds = int(now.timestamp())
    return Judge(seconds - OLDEST_SECONDS, seconds + AHEAD_SECONDS, owners, frozenset(foreign))


def namespace_number(namespace: str) -> int:
    """Return the stored id of a namespace that was found valid."""
    return CANARY_NUMBERS[namespace] if namespace in CANARY_NUMBERS else int(namespace)


def minute_of(at: float) -> int:
    return int(at // MINUTE_SECONDS) * MINUTE_SECONDS


def shown(value: Any) -> str:
    """Return the beginning of any value, for messages. Some whole numbers are too large to print."""
    if isinstance(value, int) and abs(value) > MOST_TOTAL:
        return "a number beyond all bounds"
    text = ascii(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


def told_read(field: str, reported_part: Any, type_: type[T]) -> T | Problem:
    """Return the value as that type, or what is wrong with it."""
    try:
        return typed(reported_part, type_, field)
    except MalformedMessage as error:
        return Problem(error.field, error.problem)


# Rows


class _Row(Struct, forbid_unknown_fields=True):
    minute: int
    organisation: str
    namespace: str
    model: Annotated[str, Meta(min_length=1, max_length=MOST_MODEL_CHARACTERS)]
    kv_dtype: KvDtype
    kind: Kind
    counts: Any
    missed: Any
    times: list[tuple[Annotated[int, Meta(ge=0, lt=CODES)], Annotated[int, Meta(gt=0, le=MOST_TIMES)]]]


# Together, their members are columns.ADDED without the blocks.
_Counts = defstruct("Counts", [(name, Tokens, 0) for name in COUNTS], forbid_unknown_fields=True)
_Missed = defstruct(
    "Missed",
    [(column, Tokens, 0) for column in MISSED_COLUMN.values()],
    rename={column: reason for reason, column in MISSED_COLUMN.items()},
    forbid_unknown_fields=True,
)


def _sum_problem(counts: tuple[int, ...], missed: tuple[int, ...]) -> Problem | None:
    prompt, cached = counts[_PROMPT], counts[_CACHED]
    if cached > prompt:
        return Problem("counts.cached_tokens", f"must be at most the {prompt} prompt tokens, found {cached}")
    if sum(missed) > prompt - cached:
        return Problem("missed", f"must come to at most the {prompt - cached} tokens not cached, found {sum(missed)}")
    return None


# Other parts of reports

HELD_NUMBERS: Final = defstruct(
    "Held", [(name, Tokens if name in BLOCK_COLUMNS else Size) for name in HELD], forbid_unknown_fields=True
)
POOL_NUMBERS: Final = defstruct("Pool", [(name, Size) for name in POOL], forbid_unknown_fields=True)


def numbers_read(field: str, reported_numbers: Any, type_: type[Struct]) -> tuple[int, ...] | Problem:
    """Return the numbers in the order of the type's fields, or what is wrong with them."""
    numbers = told_read(field, reported_numbers, type_)
    return numbers if isinstance(numbers, Problem) else astuple(numbers)


def total_read(field: str, numbers: Any) -> list[int] | Problem:
    """Return the numbers by TOTALS, or a problem. There are many, and a check by type takes twice as long."""
    if type(numbers) is not list or len(numbers) != len(TOTALS):
        return Problem(field, f"must be a list of {', '.join(TOTALS)}")
    for number in numbers:
        if type(number) is not int or not 0 <= number <= MOST_TOTAL:
            return Problem(field, f"must be whole numbers from 0 to {MOST_TOTAL}, found {shown(number)}")
    return numbers


MOST_CURVES: Final = 32
MOST_POINTS: Final = 64
_Numbers = Annotated[list[Annotated[float, Meta(ge=0, le=MOST_TOTAL)]], Meta(max_length=MOST_POINTS)]


class _Curve(Struct, forbid_unknown_fields=True):
    ttl_mode: Annotated[str, Meta(max_length=LONGEST_SHOWN)]
    limit_share: Annotated[float, Meta(ge=0, le=MOST_TOTAL)] | None
    hit_ratios: _Numbers
    resident_bytes: _Numbers


class _Gaps(Struct, forbid_unknown_fields=True):
    prompt_tokens: _Total
    ttls: _Numbers
    curves: Annotated[list[_Curve], Meta(max_length=MOST_CURVES)]


def gaps_problem(field: str, reported_gaps: Any) -> Problem | None:
    """Return what is wrong with the curves of one namespace, or None."""
    gaps = told_read(field, reported_gaps, _Gaps)
    if isinstance(gaps, Problem):
        return gaps
    points = len(gaps.ttls)
    if any(len(curve.hit_ratios) != points or len(curve.resident_bytes) != points for curve in gaps.curves):
        return Problem(f"{field}.curves", "must have a number for each TTL")
    return None
