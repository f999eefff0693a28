"""Isolation probes: store the results that gateways report, and read how isolated each agent is.

Results count only for engines of the gateway's own group. Malformed results of an agent are left out.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from django.db import connection
from django.db.models import Sum

from controlplane.fleet.columns import columns_sql
from controlplane.fleet.models import Agent, CanaryMinute, CanaryStanding

OUTCOMES: Final = ("isolated", "leaked", "unkept", "failed")
WINDOW: Final = timedelta(hours=1)
ADVANTAGE: Final = 0.05  # how far from 0.5 the AUC's interval may lie; beyond it, response times reveal what is cached
MOST_ROUNDS: Final = 100_000  # in one report
MOST_WHY: Final = 300
BEHIND: Final = timedelta(days=1)
State = Literal["isolated", "broken", "unproven", "unknown"]
Told = Sequence[tuple[Agent, Mapping[str, Any]]]
_NO_TIMING: Final[Mapping[str, Any]] = {"pairs": 0, "auc": None, "low": None, "high": None}


# Writing


def canaries_store(told: Told, *, now: datetime) -> None:
    """Store probe reports within the caller's transaction, in three statements for any number of reports."""
    if not told:
        return
    groups = _groups(told)
    minutes: dict[tuple[str, datetime], list[int]] = defaultdict(lambda: [0] * len(OUTCOMES))
    standings: dict[tuple[str, str], tuple[Any, ...]] = {}
    for gateway, report in told:
        at = _moment(report["at"], now)
        for agent, found in _sound(report["agents"]):
            if groups.get(agent) == gateway.group_id:
                place = (agent, at.replace(second=0, microsecond=0))
                minutes[place] = [a + b for a, b in zip(minutes[place], _counts(found), strict=True)]
                standings[gateway.pk, agent] = _standing(found, at, now)
    _minutes_add(minutes)
    _standings_put(standings)


def _groups(told: Told) -> dict[str, int]:
    """Return the group of each named engine."""
    named = {name[:63] for _, report in told for name in report["agents"] if "\0" not in name}
    return dict(Agent.objects.filter(pk__in=named, kind="engine").values_list("pk", "group_id"))


def _sound(agents: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for agent, found in agents.items():
        if _is_finding(found):
            yield agent, found


def _is_finding(told: Any) -> bool:
    return (
        isinstance(told, dict)
        and told.keys() == {"rounds", "failure", "timing"}
        and _are_rounds(told["rounds"])
        and _is_failure(told["failure"])
        and _is_timing(told["timing"])
    )


def _are_rounds(told: Any) -> bool:
    return (
        isinstance(told, dict)
        and told.keys() <= {*OUTCOMES}
        and all(type(one) is int and 0 <= one <= MOST_ROUNDS for one in told.values())
    )


def _is_failure(told: Any) -> bool:
    if told is None:
        return True
    is_object = isinstance(told, dict) and told.keys() == {"at", "why"}
    return is_object and _is_number(told["at"]) and isinstance(told["why"], str)


def _is_timing(told: Any) -> bool:
    if told is None:
        return True
    if not isinstance(told, dict) or told.keys() != _NO_TIMING.keys():
        return False
    shares = [told[name] for name in ("low", "auc", "high")]
    are_shares = all(_is_number(one) and 0 <= one <= 1 for one in shares) and shares == sorted(shares)
    return are_shares and type(told["pairs"]) is int and 0 < told["pairs"] <= MOST_ROUNDS


def _is_number(told: Any) -> bool:
    return type(told) in (int, float) and -1e12 < told < 1e12  # false for NaN


def _counts(found: Mapping[str, Any]) -> list[int]:
    return [found["rounds"].get(name, 0) for name in OUTCOMES]


def _standing(found: Mapping[str, Any], at: datetime, now: datetime) -> tuple[Any, ...]:
    failure, timing = found["failure"], found["timing"] or _NO_TIMING
    why = "" if failure is None else failure["why"].replace("\0", "")[:MOST_WHY]
    failed_at = None if failure is None else _moment(failure["at"], now)
    return at, why, failed_at, *(timing[name] for name in ("pairs", "auc", "low", "high"))


def _moment(at: float, now: datetime) -> datetime:
    """Return the reported time, limited to the past day: reports may wait in the gateway's spool."""
    seconds = min(max(at, (now - BEHIND).timestamp()), now.timestamp())
    return datetime.fromtimestamp(seconds, UTC)


def _minutes_add(minutes: Mapping[tuple[str, datetime], Sequence[int]]) -> None:
    added = ", ".join(f"{name} = old.{name} + excluded.{name}" for name in OUTCOMES)
    kinds = "agent text, minute timestamptz, " + ", ".join(f"{name} bigint" for name in OUTCOMES)
    _upsert(CanaryMinute, kinds, [(*key, *minutes[key]) for key in sorted(minutes)], "agent, minute", added)


def _standings_put(standings: Mapping[tuple[str, str], tuple[Any, ...]]) -> None:
    columns = "at timestamptz, failure text, failed_at timestamptz, pairs bigint, auc float8, low float8, high float8"
    changed = ", ".join(f"{name} = excluded.{name}" for name in (one.split()[0] for one in columns.split(", ")))
    rows = [(*key, *standings[key]) for key in sorted(standings)]
    _upsert(CanaryStanding, f"gateway text, agent text, {columns}", rows, "gateway, agent", changed)


def _upsert(model: Any, kinds: str, rows: Sequence[Sequence[Any]], key: str, changed: str) -> None:
    if not rows:
        return
    names, arrays = columns_sql(kinds)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {model._meta.db_table} AS old ({names}) SELECT * FROM unnest({arrays}) "  # noqa: S608  # ours
            f"ON CONFLICT ({key}) DO UPDATE SET {changed}",
            [list(column) for column in zip(*rows, strict=True)],
        )


# Reading


@dataclass(frozen=True, slots=True)
class Timing:
    """The AUC of one gateway's response times at an agent, with its interval: 0.5 if time reveals nothing."""

    pairs: int
    auc: float
    low: float
    high: float

    @property
    def advantage(self) -> float:
        """Return the least distance from 0.5 that the interval allows; 0 if the interval contains 0.5."""
        return max(0.0, self.low - 0.5, 0.5 - self.high)


@dataclass(frozen=True, slots=True)
class Isolation:
    """The result of the probes at one agent over the last hour. `timing` is that of the gateway furthest from 0.5."""

    rounds: Mapping[str, int]
    at: datetime | None = None
    failure: str | None = None
    failed_at: datetime | None = None
    timing: Timing | None = None

    @property
    def is_told(self) -> bool:
        """Return whether any round reached a verdict."""
        return bool(self.rounds["isolated"] or self.rounds["leaked"])

    @property
    def state(self) -> State:
        if self.rounds["leaked"] or (self.timing is not None and self.timing.advantage > ADVANTAGE):
            return "broken"
        if self.rounds["isolated"]:
            return "isolated"
        return "unproven" if any(self.rounds.values()) else "unknown"

    def view(self) -> dict[str, Any]:
        timing = self.timing
        return {
            "state": self.state,
            "rounds": dict(self.rounds),
            "told_at": self.at,
            "last_failure": self.failure,
            "last_failure_at": self.failed_at,
            "timing": timing and {"pairs": timing.pairs, "auc": timing.auc, "low": timing.low, "high": timing.high},
        }


NEVER: Final = Isolation(dict.fromkeys(OUTCOMES, 0))


def isolations_read(agents: Collection[str], *, now: datetime) -> dict[str, Isolation]:
    """Return the isolation of each agent that was probed within the last hour, in two queries."""
    since = now - WINDOW
    sums = CanaryMinute.objects.filter(agent__in=agents, minute__gte=since.replace(second=0, microsecond=0))
    rows: Any = sums.values("agent").annotate(**{f"all_{name}": Sum(name) for name in OUTCOMES}).order_by("agent")
    rounds = {row["agent"]: {name: int(row[f"all_{name}"]) for name in OUTCOMES} for row in rows}
    standings: dict[str, list[CanaryStanding]] = defaultdict(list)
    for one in CanaryStanding.objects.filter(agent__in=agents, at__gte=since).order_by("gateway"):
        standings[one.agent].append(one)
    probed = rounds.keys() | standings.keys()
    return {agent: _isolation(rounds.get(agent, NEVER.rounds), standings[agent]) for agent in probed}


def _isolation(rounds: Mapping[str, int], standings: Sequence[CanaryStanding]) -> Isolation:
    timings = [
        Timing(one.pairs, one.auc, one.low, one.high)
        for one in standings
        if one.auc is not None and one.low is not None and one.high is not None
    ]
    failures = [(one.failed_at, one.failure) for one in standings if one.failed_at is not None]
    failed_at, failure = max(failures, default=(None, None))
    return Isolation(
        rounds,
        at=max((one.at for one in standings), default=None),
        failure=failure,
        failed_at=failed_at,
        timing=max(timings, key=lambda one: (one.advantage, one.pairs), default=None),
    )
