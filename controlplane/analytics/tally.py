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

    def fullest(self, other: "Pool") -> "Pool":
        """Combine two reports of one minute, of which `self` is the newer."""
        return self._replace(
            used_bytes=max(self.used_bytes, other.used_bytes),
            evictable_bytes=max(self.evictable_bytes, other.evictable_bytes),
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
        deeds = {"usage": self._usage, "levels": self._levels, "gaps": self._gaps, "diagnostics": self._diagnostics}
        deeds[report.kind](agent, number, report.told)

    @property
    def organisations(self) -> set[int]:
        """The organisations that have new numbers."""
        return {key.organisation for _, key, _ in self.minutes if key.organisation > 0}

    # Usage

    @property
    def stands(self) -> dict[str, dict[str, int]]:
        """By agent and boot: the last counted record, where records were reported after a gap."""
        found: dict[str, dict[str, int]] = {}
        for (agent, boot), upto in self._beyond.items():
            have = self._have((agent, boot))
            counted = 0 if have is None else have.upto
            if upto > counted:
                found.setdefault(agent, {})[boot] = counted
        return found

    def _have(self, place: tuple[str, str]) -> Read | None:
        return self.read.get(place) or self.reads.get(place)

    def _follows(self, place: tuple[str, str], told: Mapping[str, Any]) -> bool:
        """Return whether to count the report: not if it is counted already, and not after a gap."""
        after, upto, born = told.get("after"), told["upto"], told.get("born")
        if after is None:
            return True
        have = self._have(place)
        if (
            have is None and after > 0
        ):  # earlier records went to a database that is gone; this one is from before the boot's first report
            self._beyond[place] = max(upto, self._beyond.get(place, 0))
            return False
        if have is None or not have.is_of(born):
            self.read[place] = Read(upto, born, is_reborn=have is not None)
            return True
        if after == have.upto:
            self.read[place] = have.moved(upto, born)
            return True
        if upto > have.upto:
            self._beyond[place] = max(upto, self._beyond.get(place, 0))
        return False

    def _usage(self, agent: str, number: int, told: Mapping[str, Any]) -> None:
        boot = told["boot"]
        if not self._follows((agent, boot), told):
            return
        keys, parts, refused = told.get("keys") or (), Parts(self.key_owners), len(self.refused.get(agent, ()))
        for place, row in enumerate(told["rows"]):
            found = self.judge.row(row)
            if isinstance(found, Problem):
                told_row = {**row, "boot": boot} if type(row) is dict else row
                self._refuse(agent, number, found, told_row, place)
            else:
                if keys:
                    parts.add(found)
                self._count(agent, boot, found, told["upto"])
        # If a row was refused, the parts by key that no longer fit are left out without a second refusal.
        is_sound = len(self.refused.get(agent, ())) == refused
        for place, part in enumerate(keys):
            self._count_key(agent, number, boot, place, parts, part, is_sound=is_sound)
        for namespace, total in told["totals"].items():
            self._total(agent, number, boot, namespace, total, told["upto"])
        if told["lost"]:
            self.lost_records += told["lost"]
            problem = Problem("lost", f"{told['lost']} records of the journal can no longer be read")
            self._refuse(agent, number, problem, {"boot": boot, "upto": told["upto"]})

    def _count(self, agent: str, boot: str, row: Counted, upto: int) -> None:
        self.counted_rows += 1
        minute = self.judge.counted_in(row.minute)
        self._add((agent, row.key, minute), row)
        entry = (agent, boot, row.key.namespace, minute // DAY_SECONDS)
        sums = self.ledger.get(entry)
        if sums is None:
            sums = self.ledger[entry] = [0] * (len(LEDGER) + 1)
        for place, source in enumerate(_LEDGER_PLACES):
            sums[place] += row.added[source]
        if row.added[_LEDGER_PLACES[0]]:
            sums[-1] = max(sums[-1], upto)

    def _count_key(
        self, agent: str, number: int, boot: str, place: int, parts: Parts, told: Any, *, is_sound: bool
    ) -> None:
        found = parts.take(told)
        if isinstance(found, Problem):
            if is_sound:
                field = f"keys.{place}.{found.field}"
                self._refuse(agent, number, Problem(field, found.problem), {"boot": boot, "of_key": told})
            return
        minute = self.judge.counted_in(found.minute)
        sums = self.by_key.setdefault((agent, found.key, minute), [0] * len(found.added))
        for column, count in enumerate(found.added):
            sums[column] += count

    def _add(self, place: tuple[str, Key, int], row: Counted) -> None:
        found = self.minutes.get(place)
        if found is None:
            self.minutes[place] = Sum(row.added, row.times)
            return
        for column, value in enumerate(row.added):
            if value:
                found.added[column] += value
        found.times.extend(row.times)

    def _total(self, agent: str, number: int, boot: str, namespace: Any, told: Any, upto: int) -> None:
        where = f"totals.{shown(namespace)}"
        found = self.judge.namespace_problem(where, namespace) or total_read(where, told)
        if isinstance(found, Problem):
            self._refuse(agent, number, found, told)
            return
        place = (agent, boot, namespace_number(namespace))
        if place not in self.totals or self.totals[place].upto <= upto:
            self.totals[place] = Total(found, upto)

    # Levels

    def _levels(self, agent: str, number: int, told: Mapping[str, Any]) -> None:
        if problem := self.judge.time_problem("at", told["at"]):
            self._refuse(agent, number, problem, {"boot": told["boot"], "at": told["at"]})
            return
        self._pool(agent, number, told)
        named = {self._held(agent, number, told, *one) for one in _customers(told["namespaces"])}
        news = self.residences.setdefault(agent, {})
        for namespace, before in {**self.held.get(agent, {}), **news}.items():
            if namespace not in named and any(before.numbers[: _BLOCKS_HELD.start]):
                news[namespace] = before.emptied()._replace(at=told["at"])
        self._evictions(agent, number, told)
        self._pins(agent, number, told)

    def _evictions(self, agent: str, number: int, told: Mapping[str, Any]) -> None:
        for place, one in enumerate(self._listed(agent, number, told, "evictions", MOST_PAIRS) or ()):
            where = f"evictions.{place}"
            found = pair_read(where, one, told["at"])
            victim = None if isinstance(found, Problem) else found[0].victim
            if victim in CANARY_NUMBERS:
                continue
            if victim is not None and victim != OTHERS:
                found = self.judge.namespace_problem(f"{where}.victim", victim) or found
            if isinstance(found, Problem):
                self._refuse(agent, number, found, one)
                continue
            pair, lost = found
            self.displaced.take(
                Place(agent, told["boot"], pair),
                lost,
                victim=NOBODY_KNOWN if pair.victim == OTHERS else int(pair.victim),
                by=self._somebody(pair.by),
                at=told["at"],
            )

    def _somebody(self, namespace: str) -> int:
        """Return the namespace that evicted the blocks. If it is gone or not this agent's, NOBODY_KNOWN: the loss
        counts anyway."""
        is_known = self.judge.namespace_problem("by", namespace) is None
        return namespace_number(namespace) if is_known else NOBODY_KNOWN

    def _pins(self, agent: str, number: int, told: Mapping[str, Any]) -> None:
        if "pins" not in told:
            return
        if (listed := self._listed(agent, number, told, "pins", MOST_PINS)) is None:
            return
        at, pins = told["at"], dict[UUID, PinTold]()
        for place, one in enumerate(listed):
            where = f"pins.{place}"
            found = pin_read(where, one)
            if not isinstance(found, Problem):
                found = self.judge.namespace_problem(f"{where}.namespace", found.namespace) or found
            if isinstance(found, Problem):
                self._refuse(agent, number, found, one)
            else:
                pins[found.id] = found
        self.pins[agent] = at, pins

    def _listed(self, agent: str, number: int, told: Mapping[str, Any], name: str, most: int) -> Sequence[Any] | None:
        """Return the list, or None if it is refused."""
        found = list_read(name, told.get(name, []), most)
        if isinstance(found, Problem):
            self._refuse(agent, number, found, None)
            return None
        return found

    def _formats(
        self, agent: str, number: int, told: Mapping[str, Any], namespace: str, held: int
    ) -> Mapping[str, int]:
        """Return the bytes by KV format; empty if they are not reported."""
        all_of = told.get("formats")
        if type(all_of) is not dict or namespace not in all_of:
            return {}
        found = formats_read(f"formats.{shown(namespace)}", all_of[namespace], held)
        if isinstance(found, Problem):
            self._refuse(agent, number, found, all_of[namespace])
            return {}
        return found

    def _pool(self, agent: str, number: int, told: Mapping[str, Any]) -> None:
        found = numbers_read("pool", told["pool"], POOL_NUMBERS)
        if isinstance(found, Problem):
            self._refuse(agent, number, found, told["pool"])
            return
        capacity, used, evictable = found
        place = (agent, minute_of(told["at"]))
        pool = Pool(told["boot"], capacity, used, evictable, told["preemptions"])
        self.pools[place] = pool.fullest(self.pools[place]) if place in self.pools else pool

    def _held(self, agent: str, number: int, told: Mapping[str, Any], namespace: Any, numbers: Any) -> int | None:
        """Take a namespace's levels and return its id, or None if they are refused."""
        where = f"namespaces.{shown(namespace)}"
        found = self.judge.namespace_problem(where, namespace) or numbers_read(where, numbers, HELD_NUMBERS)
        if isinstance(found, Problem):
            self._refuse(agent, number, found, numbers)
            return None
        formats = self._formats(agent, number, told, namespace, found[0])
        id_, held = int(namespace), Held(told["boot"], found, told["at"], formats)
        news = self.residences.setdefault(agent, {})
        left = held.left_since(news.get(id_) or self.held.get(agent, {}).get(id_))
        news[id_] = held
        if any(left):
            key = Key(self.judge.owners[namespace], id_, "", "", CACHE_KIND)
            self._add((agent, key, minute_of(told["at"])), Counted(key, 0, _blocks_added(left), []))
        return id_

    # Gaps

    def _gaps(self, agent: str, number: int, told: Mapping[str, Any]) -> None:
        problem = self.judge.time_problem("at", told["at"])
        if problem is not None:
            self._refuse(agent, number, problem, {"boot": told["boot"], "at": told["at"]})
            return
        for namespace, curves in _customers(told["namespaces"]):
            where = f"namespaces.{shown(namespace)}"
            problem = self.judge.namespace_problem(where, namespace) or gaps_problem(where, curves)
            if problem is not None:
                self._refuse(agent, number, problem, None)
            else:
                self.curves[agent, int(namespace)] = (curves, told["at"])

    def _diagnostics(self, agent: str, number: int, told: Mapping[str, Any]) -> None:
        problem = self.judge.time_problem("at", told["at"])
        if problem is not None:
            self._refuse(agent, number, problem, {"boot": told["boot"], "at": told["at"]})
            return
        for namespace, found in _customers(told["namespaces"]):
            where = f"namespaces.{shown(namespace)}"
            problem = self.judge.namespace_problem(where, namespace) or diagnostics_problem(where, found)
            if problem is not None:
                self._refuse(agent, number, problem, None)
            else:
                self.divergences[agent, int(namespace)] = (found, told["at"])

    def _refuse(self, agent: str, report: int, problem: Problem, told: Any, row: int = NO_ROW) -> None:
        self.refused.setdefault(agent, []).append(RefusedOne(report, row, *problem, told))


def namespaces_told(reports: Iterable[Report]) -> set[int]:
    """Return the ids of the namespaces that reports mention, leaving out what cannot be an id."""
    found: set[Any] = set()
    for report in reports:
        if report.kind == "usage":
            found.update(row.get("namespace") for row in report.told["rows"] if type(row) is dict and _is_named(row))
            found.update(report.told["totals"])
        else:
            found.update(report.told["namespaces"])
            found.update(namespaces_of(report.told) if report.kind == "levels" else ())
    return {int(one) for one in found if _is_id(one)}


def keys_told(reports: Iterable[Report]) -> set[str]:
    """Return the ids of the keys that reports mention, leaving out what cannot be an id."""
    told = (
        part[_KEY] for one in reports if one.kind == "usage" for part in one.told.get("keys") or () if _has_key(part)
    )
    return {key for key in told if KEY_ID.fullmatch(key)}


def _has_key(part: Any) -> bool:
    return type(part) is list and len(part) > _KEY and type(part[_KEY]) is str


def _customers(namespaces: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all namespaces but the isolation canary's: their cache use is neither stored nor shown."""
    return ((name, told) for name, told in namespaces.items() if name not in CANARY_NUMBERS)


def journals_told(told: Mapping[str, Iterable[tuple[int, Report]]]) -> set[tuple[str, str]]:
    """Return agent and boot of all journals of which reports have a range of records."""
    return {
        (agent, report.told["boot"])
        for agent, reports in told.items()
        for _, report in reports
        if report.kind == "usage" and report.told.get("after") is not None
    }


def counters_told(told: Mapping[str, Iterable[tuple[int, Report]]]) -> set[Place]:
    """Return the eviction counters that reports mention."""
    return {
        Place(agent, report.told["boot"], pair)
        for agent, reports in told.items()
        for _, report in reports
        if report.kind == "levels"
        for pair in pairs_of(report.told)
    }


def _is_named(row: Mapping[str, Any]) -> bool:
    return type(row.get("namespace")) is str


def _is_id(told: str) -> bool:
    return len(told) <= 18 and told.isascii() and told.isdecimal()


def _blocks_added(left: Sequence[int]) -> list[int]:
    added = [0] * len(ADDED)
    for place, blocks in zip(_BLOCK_PLACES, left, strict=True):
        added[place] = blocks
    return added
