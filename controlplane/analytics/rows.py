"""What usage reports tell, checked row by row: what is sound is counted, of the rest it is said what is wrong. Pure.

A row is refused by itself, by field and problem; the others of its report are kept. Nothing here raises for whatever
an agent may say.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any, Final, NamedTuple, get_args

from controlplane.analytics.columns import ADDED, BLOCK_COLUMNS, COUNT_BITS, MISSED_COLUMN
from engine_agent.contracts.protocol import CANARIES
from engine_agent.contracts.usage import CODES, COUNTS, KINDS, MINUTE_SECONDS
from tenants.policy import KvDtype

MOST: Final = 2**40  # of anything counted, in one row: more tokens than any engine computes in its life
MOST_TIMES: Final = 2**31  # of one code in one row; COUNT_BITS hold it
MOST_TOTAL: Final = 2**62  # of what an engine counts since its boot
MOST_BYTES: Final = 2**50  # in a cache: more than any machine has
MOST_MODEL_CHARACTERS: Final = 200
OLDEST_SECONDS: Final = 48 * 3600
AHEAD_SECONDS: Final = 5 * 60
SET_BACK_SECONDS: Final = 48 * 3600  # that the control plane's clock may be set back, and no request is lost by it
FIELDS: Final = frozenset(
    {"minute", "organisation", "namespace", "model", "kv_dtype", "kind", "counts", "missed", "times"}
)
KV_DTYPES: Final = frozenset(get_args(KvDtype))
HELD: Final = ("resident_bytes", "host_bytes", *BLOCK_COLUMNS)  # of a namespace on an engine, now
POOL: Final = ("capacity_bytes", "used_bytes", "evictable_bytes")
TOTALS: Final = ("requests", "prompt_tokens", "cached_tokens")
# The isolation canary's tenants are stored as numbers that no organisation and no namespace has.
CANARY_NUMBERS: Final[Mapping[str, int]] = {name: -2 - place for place, name in enumerate(CANARIES)}
PROBE: Final = "probe"
NO_ROW: Final = -1  # the place of what is wrong with a report itself
LONGEST_SHOWN: Final = 60

_COUNT_PLACES: Final = {name: ADDED.index(name) for name in COUNTS}
_MISSED_PLACES: Final = {reason: ADDED.index(column) for reason, column in MISSED_COLUMN.items()}
_PROMPT, _CACHED = ADDED.index("prompt_tokens"), ADDED.index("cached_tokens")
_MISSED: Final = slice(min(_MISSED_PLACES.values()), max(_MISSED_PLACES.values()) + 1)
Owners = Mapping[str, int]  # whose each namespace is, by the id as it is told


class Key(NamedTuple):
    """What a row is about: with its agent, a series."""

    organisation: int
    namespace: int
    model: str
    kv_dtype: str
    kind: str


class Counted(NamedTuple):
    """`added` by ADDED; `times` as they are stored."""

    key: Key
    minute: int
    added: list[int]
    times: list[int]


class Problem(NamedTuple):
    field: str
    problem: str


@dataclass(frozen=True, slots=True)
class Judge:
    """What one agent's rows are held against: the minutes that are taken, and whose each namespace is."""

    oldest: int
    newest: int
    owners: Owners
    foreign: frozenset[str] = frozenset()  # namespaces that whoever tells is not to serve

    def row(self, told: Any) -> Counted | Problem:
        if type(told) is not dict or told.keys() != FIELDS:
            return _shape_problem(told)
        problem = self._about_problem(told)
        if problem is not None:
            return problem
        added, times = [0] * len(ADDED), list[int]()
        problem = (
            _counts_problem("counts", told["counts"], _COUNT_PLACES, added)
            or _counts_problem("missed", told["missed"], _MISSED_PLACES, added)
            or _sum_problem(added)
            or _times_problem(told["times"], times)
        )
        if problem is not None:
            return problem
        owner, namespace = self.owners[told["namespace"]], namespace_number(told["namespace"])
        return Counted(
            Key(owner, namespace, told["model"], told["kv_dtype"], told["kind"]), told["minute"], added, times
        )

    def _about_problem(self, told: Mapping[str, Any]) -> Problem | None:
        model, minute = told["model"], told["minute"]
        if type(minute) is not int or minute % MINUTE_SECONDS:
            return Problem("minute", f"must be unix seconds at which a minute begins, found {shown(minute)}")
        if problem := self.time_problem("minute", minute, set_back=SET_BACK_SECONDS):
            return problem
        if problem := self.namespace_problem("namespace", told["namespace"]):
            return problem
        is_canary = told["namespace"] in CANARY_NUMBERS
        if told["organisation"] != (told["namespace"] if is_canary else str(self.owners[told["namespace"]])):
            return Problem("organisation", f"must be the namespace's, found {shown(told['organisation'])}")
        if type(model) is not str or not 0 < len(model) <= MOST_MODEL_CHARACTERS:
            return Problem("model", f"must be text of 1 to {MOST_MODEL_CHARACTERS} characters, found {shown(model)}")
        if type(told["kv_dtype"]) is not str or told["kv_dtype"] not in KV_DTYPES:
            return Problem("kv_dtype", f"must be a KV format that we know, found {shown(told['kv_dtype'])}")
        if is_canary and told["kind"] != PROBE:
            return Problem("kind", f"must be {PROBE} where nobody is a customer, found {shown(told['kind'])}")
        if told["kind"] not in KINDS:
            return Problem("kind", f"must be one of {', '.join(KINDS)}, found {shown(told['kind'])}")
        return None

    def counted_in(self, minute: int) -> int:
        """Requests are dated by the control plane's clock. Where that was set back before they were told, the minute is
        still to come, and they are counted in this one."""
        return minute if minute <= self.newest else minute_of(self.newest - AHEAD_SECONDS)

    def time_problem(self, field: str, at: float, *, set_back: int = 0) -> Problem | None:
        """`set_back`: seconds that the clock which dated it may have been set back since."""
        if at < self.oldest:
            return Problem(field, f"is older than {OLDEST_SECONDS // 3600} hours: {shown(at)}")
        if at > self.newest + set_back:
            return Problem(field, f"is more than {(AHEAD_SECONDS + set_back) // 60:,} minutes ahead: {shown(at)}")
        return None

    def namespace_problem(self, field: str, told: Any) -> Problem | None:
        if type(told) is not str or told not in self.owners:
            return Problem(field, f"there is no namespace {shown(told)}")
        if told in self.foreign:
            return Problem(field, f"is not this agent's to serve: {shown(told)}")
        return None


def judge(now: datetime, owners: Owners, foreign: Iterable[str] = ()) -> Judge:
    seconds = int(now.timestamp())
    return Judge(seconds - OLDEST_SECONDS, seconds + AHEAD_SECONDS, owners, frozenset(foreign))


def namespace_number(told: str) -> int:
    """Of one that was found to be one."""
    return CANARY_NUMBERS[told] if told in CANARY_NUMBERS else int(told)


def minute_of(at: float) -> int:
    return int(at // MINUTE_SECONDS) * MINUTE_SECONDS


def shown(value: Any) -> str:
    """The beginning of whatever it is, for people; a whole number may be too large to be written."""
    if isinstance(value, int) and abs(value) > MOST_TOTAL:
        return "a number beyond all bounds"
    text = ascii(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


# Rows


def _shape_problem(told: Any) -> Problem:
    if type(told) is not dict:
        return Problem("row", f"must be an object, found {shown(told)}")
    for name in sorted(FIELDS - told.keys()):
        return Problem(name, "is missing")
    return Problem(shown(min(told.keys() - FIELDS))[:LONGEST_SHOWN].strip("'"), "is not a field we know")


def _counts_problem(field: str, told: Any, places: Mapping[str, int], added: list[int]) -> Problem | None:
    """Writes what is sound into `added`."""
    if type(told) is not dict:
        return Problem(field, f"must be an object, found {shown(told)}")
    for name, value in told.items():
        if name not in places:
            return Problem(field, f"{shown(name)} is nothing that is counted")
        if type(value) is not int or not 0 <= value <= MOST:
            return Problem(f"{field}.{name}", f"must be a whole number from 0 to {MOST}, found {shown(value)}")
        added[places[name]] = value
    return None


def _sum_problem(added: list[int]) -> Problem | None:
    prompt, cached = added[_PROMPT], added[_CACHED]
    if cached > prompt:
        return Problem("counts.cached_tokens", f"must be at most the {prompt} prompt tokens, found {cached}")
    missed = sum(added[_MISSED])
    if missed > prompt - cached:
        return Problem("missed", f"must come to at most the {prompt - cached} tokens not cached, found {missed}")
    return None


def _times_problem(told: Any, times: list[int]) -> Problem | None:
    if type(told) is not list:
        return Problem("times", f"must be a list, found {shown(told)}")
    try:
        for code, count in told:
            if type(code) is not int or not 0 <= code < CODES:
                return Problem("times", f"a code must be a whole number from 0 to {CODES - 1}, found {shown(code)}")
            if type(count) is not int or not 0 < count <= MOST_TIMES:
                return Problem("times", f"a count must be a whole number from 1 to {MOST_TIMES}, found {shown(count)}")
            times.append(code << COUNT_BITS | count)
    except (TypeError, ValueError):  # what is no pair does not come apart as one
        return Problem("times", "must be pairs of a code and a count")
    return None


# What reports tell besides rows


def numbers_read(field: str, told: Any, names: Iterable[str]) -> list[int] | Problem:
    """An object of exactly these numbers, in this order: bytes, and blocks, of which there are fewer."""
    wanted = tuple(names)
    if type(told) is not dict or told.keys() != set(wanted):
        return Problem(field, f"must be an object of {', '.join(wanted)}")
    blocks = _all_counts(field, [told[name] for name in wanted if name in BLOCK_COLUMNS], MOST)
    return blocks if isinstance(blocks, Problem) else _all_counts(field, [told[name] for name in wanted], MOST_BYTES)


def total_read(field: str, told: Any) -> list[int] | Problem:
    """By TOTALS."""
    if type(told) is not list or len(told) != len(TOTALS):
        return Problem(field, f"must be a list of {', '.join(TOTALS)}")
    return _all_counts(field, told, MOST_TOTAL)


def _all_counts(field: str, values: list[Any], most: int) -> list[int] | Problem:
    for value in values:
        if type(value) is not int or not 0 <= value <= most:
            return Problem(field, f"must be whole numbers from 0 to {most}, found {shown(value)}")
    return values


MOST_CURVES: Final = 32
MOST_POINTS: Final = 64
_CURVE: Final = frozenset({"ttl_mode", "limit_share", "hit_ratios", "resident_bytes"})


def gaps_problem(field: str, told: Any) -> Problem | None:
    """What is wrong with the curves of one namespace."""
    if type(told) is not dict or told.keys() != {"prompt_tokens", "ttls", "curves"}:
        return Problem(field, "must be an object of prompt_tokens, ttls, curves")
    if type(told["prompt_tokens"]) is not int or not 0 <= told["prompt_tokens"] <= MOST_TOTAL:
        return Problem(f"{field}.prompt_tokens", f"must be a whole number, found {shown(told['prompt_tokens'])}")
    if not _are_numbers(told["ttls"]):
        return Problem(f"{field}.ttls", f"must be at most {MOST_POINTS} numbers from 0")
    curves, points = told["curves"], len(told["ttls"])
    if type(curves) is not list or len(curves) > MOST_CURVES or not all(_is_curve(one, points) for one in curves):
        return Problem(f"{field}.curves", f"must be at most {MOST_CURVES} curves of a number for each TTL")
    return None


def _is_curve(told: Any, points: int) -> bool:
    if type(told) is not dict or told.keys() != _CURVE:
        return False
    lines = (told["hit_ratios"], told["resident_bytes"])
    is_told = type(told["ttl_mode"]) is str and len(told["ttl_mode"]) <= LONGEST_SHOWN
    is_told = is_told and (told["limit_share"] is None or _is_number(told["limit_share"]))
    return is_told and all(_are_numbers(one) and len(one) == points for one in lines)


def _are_numbers(told: Any) -> bool:
    return type(told) is list and len(told) <= MOST_POINTS and all(map(_is_number, told))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= MOST_TOTAL and isfinite(value)
