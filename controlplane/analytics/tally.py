"""The sums of new reports of any number of agents, added up before they are written. Pure.

Rows of the same series and minute become one. What cannot be counted is kept by report and field. Levels are compared
with those that the agent's engine reported before: blocks that have left the cache since then count in the minute of
the report.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from controlplane.analytics.columns import ADDED, BLOCK_COLUMNS, CACHE_KIND
from controlplane.analytics.diagnostics_told import diagnostics_problem
from controlplane.analytics.displaced import NOBODY_KNOWN, Displaced, Place
from controlplane.analytics.key_rows import MEMBERS as KEY_MEMBERS
from controlplane.analytics.key_rows import KeyKey, KeyOwners, Parts
from controlplane.analytics.levels_told import (
    MOST_PAIRS,
    MOST_PINS,
    OTHERS,
    PinTold,
    formats_read,
    list_read,
    namespaces_of,
    pair_read,
    pairs_of,
    pin_read,
)
from controlplane.analytics.rows import (
    CANARY_NUMBERS,
    HELD,
    HELD_NUMBERS,
    NO_ROW,
    POOL_NUMBERS,
    Counted,
    Judge,
    Key,
    Problem,
    gaps_problem,
    minute_of,
    namespace_number,
    numbers_read,
    shown,
    total_read,
)
from controlplane.analytics.windows import DAY_SECONDS
from engine_agent.contracts.wire import Report

LEDGER: Final = ("requests", "prompt_tokens", "cached_tokens", "generated_tokens")
KINDS: Final = ("usage", "levels", "gaps", "diagnostics")
_LEDGER_PLACES: Final = tuple(ADDED.index(name) for name in LEDGER)
_BLOCK_PLACES: Final = tuple(ADDED.index(name) for name in BLOCK_COLUMNS)
_KEY: Final = KEY_MEMBERS.index("key")
KEY_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_BLOCKS_HELD: Final = slice(HELD.index(BLOCK_COLUMNS[0]), None)


class RefusedOne(NamedTuple):
    report: int
    row: int
    field: str
    problem: str
    told: Any

    def as_json(self) -> dict[str, Any]:
        return {"report": self.report, "row": self.row, "field": self.field, "problem": self.problem}


class Held(NamedTuple):
    """A namespace's cache use on an agent, as last reported. `numbers` by rows.HELD; `formats`: bytes by KV format."""

    boot: str
    numbers: Sequence[int]
    at: float
    formats: Mapping[str, int] = {}

    def left_since(self, before: "Held | None") -> Sequence[int]:
        """Return how many blocks left since `before`, by BLOCK_COLUMNS. A restarted engine counts from zero."""
        now = self.numbers[_BLOCKS_HELD]
        if before is None or before.boot != self.boot:
            return now
        pairs = zip(now, before.numbers[_BLOCKS_HELD], strict=True)
        return [new - old if new >= old else new for new, old in pairs]

    def emptied(self) -> "Held":
        """Return an empty cache with the same block counts: the engine no longer reports the namespace."""
        return self._replace(numbers=(0, 0, *self.numbers[_BLOCKS_HELD]), formats={})


class Pool(NamedTuple):
    boot: str
    capacity_bytes: int
    used_bytes: int
    evictable_bytes: int
    preemptions: int

    def fullest(self, older: "Pool") -> "Pool":
        """Combine two reports of one minute, of which `self` is the newer."""
        return self._replace(
            used_bytes=max(self.used_bytes, older.used_bytes),
            evictable_bytes=max(self.evictable_bytes, older.evictable_bytes),
        )


class Total(NamedTuple):
    numbers: Sequence[int]  # by rows.TOTALS
    upto: int


class Read(NamedTuple):
    """The position up to which the journal of an agent's boot is counted."""

    upto: int
    born: int | None
    is_reborn: bool = False

    def is_of(self, born: int | None) -> bool:
        """Return False if this is another journal of the same name."""
        return self.born is None or born is None or self.born == born

    def moved(self, upto: int, born: int | None) -> "Read":
        return self._replace(upto=max(upto, self.upto), born=born if self.born is None else self.born)


class Sum(NamedTuple):
    added: list[int]
    times: list[int]


@dataclass(slots=True)
class Tally:
    """The sums of new reports.

    `held`: the levels that agents reported before; `residences`: the new ones. `reads`: the journal positions before,
    by agent and boot; `read`: the new ones. `key_owners`: the owners of the keys in the reports.
    """

    judge: Judge
    now: datetime
    held: Mapping[str, Mapping[int, Held]] = field(default_factory=dict)
    reads: Mapping[tuple[str, str], Read] = field(default_factory=dict)
    key_owners: KeyOwners = field(default_factory=dict)
    displaced: Displaced = field(default_factory=Displaced)
    pins: dict[str, tuple[float, dict[UUID, PinTold]]] = field(default_factory=dict)  # by agent: report time, pins
    read: dict[tuple[str, str], Read] = field(default_factory=dict)
    minutes: dict[tuple[str, Key, int], Sum] = field(default_factory=dict)
    by_key: dict[tuple[str, KeyKey, int], list[int]] = field(default_factory=dict)  # by KEY_ADDED
    # By agent, boot, namespace and day since 1970.
    ledger: dict[tuple[str, str, int, int], list[int]] = field(default_factory=dict)  # by LEDGER, then the last record
    totals: dict[tuple[str, str, int], Total] = field(default_factory=dict)
    residences: dict[str, dict[int, Held]] = field(default_factory=dict)
    pools: dict[tuple[str, int], Pool] = field(default_factory=dict)
    curves: dict[tuple[str, int], tuple[Any, float]] = field(default_factory=dict)
    divergences: dict[tuple[str, int], tuple[Any, float]] = field(default_factory=dict)
    refused: dict[str, list[RefusedOne]] = field(default_factory=dict)
    _beyond: dict[tuple[str, str], int] = field(default_factory=dict)  # last record reported after a gap
    counted_rows: int = 0
    lost_records: int = 0

    def take(self, agent: str, number: int, report: Report) -> None:
        handlers = {"usage": self._usage, "levels": self._levels, "gaps": self._gaps, "diagnostics": self._diagnostics}
        handlers[report.kind](agent, number, report.told)

    @property
    def organisations(self) -> set[int]:
        """The organisations that have new numbers."""
        return {key.organisation for _, key, _ in self.minutes if key.organisation > 0}

    # Usage

    @property
    def stands(self) -> dict[str, dict[str, int]]:
        """By agent and boot: the last counted record, where records were reported after a gap."""
        positions: dict[str, dict[str, int]] = {}
        for (agent, boot), upto in self._beyond.items():
            position = self._have((agent, boot))
            counted = 0 if position is None else position.upto
            if upto > counted:
                positions.setdefault(agent, {})[boot] = counted
        return positions

    def _have(self, journal: tuple[str, str]) -> Read | None:
        return self.read.get(journal) or self.reads.get(journal)

    def _follows(self, journal: tuple[str, str], report: Mapping[str, Any]) -> bool:
        """Return whether to count the report: not if it is counted already, and not after a gap."""
        after, upto, born = report.get("after"), report["upto"], report.get("born")
        if after is None:
            return True
        position = self._have(journal)
        if (
            position is None and after > 0
        ):  # earlier records went to a database that is gone; this one is from before the boot's first report
            self._beyond[journal] = max(upto, self._beyond.get(journal, 0))
            return False
        if position is None or not position.is_of(born):
            self.read[journal] = Read(upto, born, is_reborn=position is not None)
            return True
        if after == position.upto:
            self.read[journal] = position.moved(upto, born)
            return True
        if upto > position.upto:
            self._beyond[journal] = max(upto, self._beyond.get(journal, 0))
        return False

    def _usage(self, agent: str, number: int, report: Mapping[str, Any]) -> None:
        boot = report["boot"]
        if not self._follows((agent, boot), report):
            return
        keys, parts, refused = report.get("keys") or (), Parts(self.key_owners), len(self.refused.get(agent, ()))
        for index, row in enumerate(report["rows"]):
            counted = self.judge.row(row)
            if isinstance(counted, Problem):
                refused_row = {**row, "boot": boot} if type(row) is dict else row
                self._refuse(agent, number, counted, refused_row, index)
            else:
                if keys:
                    parts.add(counted)
                self._count(agent, boot, counted, report["upto"])
        # If a row was refused, the parts by key that no longer fit are left out without a second refusal.
        is_sound = len(self.refused.get(agent, ())) == refused
        for index, part in enumerate(keys):
            self._count_key(agent, number, boot, index, parts, part, is_sound=is_sound)
        for namespace, total in report["totals"].items():
            self._total(agent, number, boot, namespace, total, report["upto"])
        if report["lost"]:
            self.lost_records += report["lost"]
            problem = Problem("lost", f"{report['lost']} records of the journal can no longer be read")
            self._refuse(agent, number, problem, {"boot": boot, "upto": report["upto"]})

    def _count(self, agent: str, boot: str, row: Counted, upto: int) -> None:
        self.counted_rows += 1
        minute = self.judge.counted_in(row.minute)
        self._add((agent, row.key, minute), row)
        entry = (agent, boot, row.key.namespace, minute // DAY_SECONDS)
        sums = self.ledger.get(entry)
        if sums is None:
            sums = self.ledger[entry] = [0] * (len(LEDGER) + 1)
        for column, source in enumerate(_LEDGER_PLACES):
            sums[column] += row.added[source]
        if row.added[_LEDGER_PLACES[0]]:
            sums[-1] = max(sums[-1], upto)

    def _count_key(
        self, agent: str, number: int, boot: str, index: int, parts: Parts, part: Any, *, is_sound: bool
    ) -> None:
        counted = parts.take(part)
        if isinstance(counted, Problem):
            if is_sound:
                field = f"keys.{index}.{counted.field}"
                self._refuse(agent, number, Problem(field, counted.problem), {"boot": boot, "of_key": part})
            return
        minute = self.judge.counted_in(counted.minute)
        sums = self.by_key.setdefault((agent, counted.key, minute), [0] * len(counted.added))
        for column, count in enumerate(counted.added):
            sums[column] += count

    def _add(self, minute_key: tuple[str, Key, int], row: Counted) -> None:
        minute_sum = self.minutes.get(minute_key)
        if minute_sum is None:
            self.minutes[minute_key] = Sum(row.added, row.times)
            return
        for column, count in enumerate(row.added):
            if count:
                minute_sum.added[column] += count
        minute_sum.times.extend(row.times)

    def _total(self, agent: str, number: int, boot: str, namespace: Any, total: Any, upto: int) -> None:
        field_path = f"totals.{shown(namespace)}"
        numbers = self.judge.namespace_problem(field_path, namespace) or total_read(field_path, total)
        if isinstance(numbers, Problem):
            self._refuse(agent, number, numbers, total)
            return
        total_key = (agent, boot, namespace_number(namespace))
        if total_key not in self.totals or self.totals[total_key].upto <= upto:
            self.totals[total_key] = Total(numbers, upto)

    # Levels

    def _levels(self, agent: str, number: int, report: Mapping[str, Any]) -> None:
        if problem := self.judge.time_problem("at", report["at"]):
            self._refuse(agent, number, problem, {"boot": report["boot"], "at": report["at"]})
            return
        self._pool(agent, number, report)
        reported_namespaces = {
            self._held(agent, number, report, *namespace_levels)
            for namespace_levels in _customers(report["namespaces"])
        }
        agent_residences = self.residences.setdefault(agent, {})
        for namespace, previous in {**self.held.get(agent, {}), **agent_residences}.items():
            if namespace not in reported_namespaces and any(previous.numbers[: _BLOCKS_HELD.start]):
                agent_residences[namespace] = previous.emptied()._replace(at=report["at"])
        self._evictions(agent, number, report)
        self._pins(agent, number, report)

    def _evictions(self, agent: str, number: int, report: Mapping[str, Any]) -> None:
        for index, eviction in enumerate(self._listed(agent, number, report, "evictions", MOST_PAIRS) or ()):
            field_path = f"evictions.{index}"
            checked_eviction = pair_read(field_path, eviction, report["at"])
            victim = None if isinstance(checked_eviction, Problem) else checked_eviction[0].victim
            if victim in CANARY_NUMBERS:
                continue
            if victim is not None and victim != OTHERS:
                checked_eviction = self.judge.namespace_problem(f"{field_path}.victim", victim) or checked_eviction
            if isinstance(checked_eviction, Problem):
                self._refuse(agent, number, checked_eviction, eviction)
                continue
            pair, lost = checked_eviction
            self.displaced.take(
                Place(agent, report["boot"], pair),
                lost,
                victim=NOBODY_KNOWN if pair.victim == OTHERS else int(pair.victim),
                by=self._somebody(pair.by),
                at=report["at"],
            )

    def _somebody(self, namespace: str) -> int:
        """Return the namespace that evicted the blocks. If it is gone or not this agent's, NOBODY_KNOWN: the loss
        counts anyway."""
        is_known = self.judge.namespace_problem("by", namespace) is None
        return namespace_number(namespace) if is_known else NOBODY_KNOWN

    def _pins(self, agent: str, number: int, report: Mapping[str, Any]) -> None:
        if "pins" not in report:
            return
        if (reported_pins := self._listed(agent, number, report, "pins", MOST_PINS)) is None:
            return
        at, pins = report["at"], dict[UUID, PinTold]()
        for index, reported_pin in enumerate(reported_pins):
            field_path = f"pins.{index}"
            pin = pin_read(field_path, reported_pin)
            if not isinstance(pin, Problem):
                pin = self.judge.namespace_problem(f"{field_path}.namespace", pin.namespace) or pin
            if isinstance(pin, Problem):
                self._refuse(agent, number, pin, reported_pin)
            else:
                pins[pin.id] = pin
        self.pins[agent] = at, pins

    def _listed(self, agent: str, number: int, report: Mapping[str, Any], name: str, most: int) -> Sequence[Any] | None:
        """Return the list, or None if it is refused."""
        entries = list_read(name, report.get(name, []), most)
        if isinstance(entries, Problem):
            self._refuse(agent, number, entries, None)
            return None
        return entries

    def _formats(
        self, agent: str, number: int, report: Mapping[str, Any], namespace: str, resident_bytes: int
    ) -> Mapping[str, int]:
        """Return the bytes by KV format; empty if they are not reported."""
        reported_formats = report.get("formats")
        if type(reported_formats) is not dict or namespace not in reported_formats:
            return {}
        formats = formats_read(f"formats.{shown(namespace)}", reported_formats[namespace], resident_bytes)
        if isinstance(formats, Problem):
            self._refuse(agent, number, formats, reported_formats[namespace])
            return {}
        return formats

    def _pool(self, agent: str, number: int, report: Mapping[str, Any]) -> None:
        numbers = numbers_read("pool", report["pool"], POOL_NUMBERS)
        if isinstance(numbers, Problem):
            self._refuse(agent, number, numbers, report["pool"])
            return
        capacity, used, evictable = numbers
        pool_key = (agent, minute_of(report["at"]))
        pool = Pool(report["boot"], capacity, used, evictable, report["preemptions"])
        self.pools[pool_key] = pool.fullest(self.pools[pool_key]) if pool_key in self.pools else pool

    def _held(self, agent: str, number: int, report: Mapping[str, Any], namespace: Any, numbers: Any) -> int | None:
        """Take a namespace's levels and return its id, or None if they are refused."""
        field_path = f"namespaces.{shown(namespace)}"
        checked_numbers = self.judge.namespace_problem(field_path, namespace) or numbers_read(
            field_path, numbers, HELD_NUMBERS
        )
        if isinstance(checked_numbers, Problem):
            self._refuse(agent, number, checked_numbers, numbers)
            return None
        formats = self._formats(agent, number, report, namespace, checked_numbers[0])
        id_, residence = int(namespace), Held(report["boot"], checked_numbers, report["at"], formats)
        agent_residences = self.residences.setdefault(agent, {})
        left_blocks = residence.left_since(agent_residences.get(id_) or self.held.get(agent, {}).get(id_))
        agent_residences[id_] = residence
        if any(left_blocks):
            key = Key(self.judge.owners[namespace], id_, "", "", CACHE_KIND)
            self._add((agent, key, minute_of(report["at"])), Counted(key, 0, _blocks_added(left_blocks), []))
        return id_

    # Gaps

    def _gaps(self, agent: str, number: int, report: Mapping[str, Any]) -> None:
        problem = self.judge.time_problem("at", report["at"])
        if problem is not None:
            self._refuse(agent, number, problem, {"boot": report["boot"], "at": report["at"]})
            return
        for namespace, curves in _customers(report["namespaces"]):
            field_path = f"namespaces.{shown(namespace)}"
            problem = self.judge.namespace_problem(field_path, namespace) or gaps_problem(field_path, curves)
            if problem is not None:
                self._refuse(agent, number, problem, None)
            else:
                self.curves[agent, int(namespace)] = (curves, report["at"])

    def _diagnostics(self, agent: str, number: int, report: Mapping[str, Any]) -> None:
        problem = self.judge.time_problem("at", report["at"])
        if problem is not None:
            self._refuse(agent, number, problem, {"boot": report["boot"], "at": report["at"]})
            return
        for namespace, divergence in _customers(report["namespaces"]):
            field_path = f"namespaces.{shown(namespace)}"
            problem = self.judge.namespace_problem(field_path, namespace) or diagnostics_problem(field_path, divergence)
            if problem is not None:
                self._refuse(agent, number, problem, None)
            else:
                self.divergences[agent, int(namespace)] = (divergence, report["at"])

    def _refuse(self, agent: str, report: int, problem: Problem, refused_content: Any, row: int = NO_ROW) -> None:
        self.refused.setdefault(agent, []).append(RefusedOne(report, row, *problem, refused_content))


def namespaces_told(reports: Iterable[Report]) -> set[int]:
    """Return the ids of the namespaces that reports mention, leaving out what cannot be an id."""
    names: set[Any] = set()
    for report in reports:
        if report.kind == "usage":
            names.update(row.get("namespace") for row in report.told["rows"] if type(row) is dict and _is_named(row))
            names.update(report.told["totals"])
        else:
            names.update(report.told["namespaces"])
            names.update(namespaces_of(report.told) if report.kind == "levels" else ())
    return {int(name) for name in names if _is_id(name)}


def keys_told(reports: Iterable[Report]) -> set[str]:
    """Return the ids of the keys that reports mention, leaving out what cannot be an id."""
    keys = (
        part[_KEY]
        for report in reports
        if report.kind == "usage"
        for part in report.told.get("keys") or ()
        if _has_key(part)
    )
    return {key for key in keys if KEY_ID.fullmatch(key)}


def _has_key(part: Any) -> bool:
    return type(part) is list and len(part) > _KEY and type(part[_KEY]) is str


def _customers(namespaces: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all namespaces but the isolation canary's: their cache use is neither stored nor shown."""
    return ((name, namespace_report) for name, namespace_report in namespaces.items() if name not in CANARY_NUMBERS)


def journals_told(reports_by_agent: Mapping[str, Iterable[tuple[int, Report]]]) -> set[tuple[str, str]]:
    """Return agent and boot of all journals of which reports have a range of records."""
    return {
        (agent, report.told["boot"])
        for agent, reports in reports_by_agent.items()
        for _, report in reports
        if report.kind == "usage" and report.told.get("after") is not None
    }


def counters_told(reports_by_agent: Mapping[str, Iterable[tuple[int, Report]]]) -> set[Place]:
    """Return the eviction counters that reports mention."""
    return {
        Place(agent, report.told["boot"], pair)
        for agent, reports in reports_by_agent.items()
        for _, report in reports
        if report.kind == "levels"
        for pair in pairs_of(report.told)
    }


def _is_named(row: Mapping[str, Any]) -> bool:
    return type(row.get("namespace")) is str


def _is_id(name: str) -> bool:
    return len(name) <= 18 and name.isascii() and name.isdecimal()


def _blocks_added(left: Sequence[int]) -> list[int]:
    added = [0] * len(ADDED)
    for column, blocks in zip(_BLOCK_PLACES, left, strict=True):
        added[column] = blocks
    return added
