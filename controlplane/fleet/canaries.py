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


def canaries_store(reports: Told, *, now: datetime) -> None:
    """Store probe reports within the caller's transaction, in three statements for any number of reports."""
    if not reports:
        return
    groups = _groups(reports)
    minutes: dict[tuple[str, datetime], list[int]] = defaultdict(lambda: [0] * len(OUTCOMES))
    standings: dict[tuple[str, str], tuple[Any, ...]] = {}
    for gateway, report in reports:
        at = _moment(report["at"], now)
        for agent, finding in _sound(report["agents"]):
            if groups.get(agent) == gateway.group_id:
                minute_key = (agent, at.replace(second=0, microsecond=0))
                minutes[minute_key] = [a + b for a, b in zip(minutes[minute_key], _counts(finding), strict=True)]
                standings[gateway.pk, agent] = _standing(finding, at, now)
    _minutes_add(minutes)
    _standings_put(standings)


def _groups(reports: Told) -> dict[str, int]:
    """Return the group of each named engine."""
    names = {name[:63] for _, report in reports for name in report["agents"] if "\0" not in name}
    return dict(Agent.objects.filter(pk__in=names, kind="engine").values_list("pk", "group_id"))


def _sound(agents: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for agent, finding in agents.items():
        if _is_finding(finding):
            yield agent, finding


def _is_finding(finding: Any) -> bool:
    return (
        isinstance(finding, dict)
        and finding.keys() == {"rounds", "failure", "timing"}
        and _are_rounds(finding["rounds"])
        and _is_failure(finding["failure"])
        and _is_timing(finding["timing"])
    )


def _are_rounds(rounds: Any) -> bool:
    return (
        isinstance(rounds, dict)
        and rounds.keys() <= {*OUTCOMES}
        and all(type(count) is int and 0 <= count <= MOST_ROUNDS for count in rounds.values())
    )


def _is_failure(failure: Any) -> bool:
    if failure is None:
        return True
    is_object = isinstance(failure, dict) and failure.keys() == {"at", "why"}
    return is_object and _is_number(failure["at"]) and isinstance(failure["why"], str)


def _is_timing(timing: Any) -> bool:
    if timing is None:
        return True
    if not isinstance(timing, dict) or timing.keys() != _NO_TIMING.keys():
        return False
    shares = [timing[name] for name in ("low", "auc", "high")]
    are_shares = all(_is_number(share) and 0 <= share <= 1 for share in shares) and shares == sorted(shares)
    return are_shares and type(timing["pairs"]) is int and 0 < timing["pairs"] <= MOST_ROUNDS


def _is_number(number: Any) -> bool:
    return type(number) in (int, float) and -1e12 < number < 1e12  # false for NaN


def _counts(finding: Mapping[str, Any]) -> list[int]:
    return [finding["rounds"].get(name, 0) for name in OUTCOMES]


def _standing(finding: Mapping[str, Any], at: datetime, now: datetime) -> tuple[Any, ...]:
    failure, timing = finding["failure"], finding["timing"] or _NO_TIMING
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
    changed = ", ".join(f"{name} = excluded.{name}" for name in (column.split()[0] for column in columns.split(", ")))
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
    for probe_result in CanaryStanding.objects.filter(agent__in=agents, at__gte=since).order_by("gateway"):
        standings[probe_result.agent].append(probe_result)
    probed = rounds.keys() | standings.keys()
    return {agent: _isolation(rounds.get(agent, NEVER.rounds), standings[agent]) for agent in probed}


def _isolation(rounds: Mapping[str, int], standings: Sequence[CanaryStanding]) -> Isolation:
    timings = [
        Timing(probe_result.pairs, probe_result.auc, probe_result.low, probe_result.high)
        for probe_result in standings
        if probe_result.auc is not None and probe_result.low is not None and probe_result.high is not None
    ]
    failures = [
        (probe_result.failed_at, probe_result.failure)
        for probe_result in standings
        if probe_result.failed_at is not None
    ]
    failed_at, failure = max(failures, default=(None, None))
    return Isolation(
        rounds,
        at=max((probe_result.at for probe_result in standings), default=None),
        failure=failure,
        failed_at=failed_at,
        timing=max(timings, key=lambda timing: (timing.advantage, timing.pairs), default=None),
    )
