"""Report how full the holder's cache is, and its forecasts under other policies, often enough for charts.

A report does not build on earlier ones, so no further report of a kind is spooled while one waits. A namespace missing
from a `levels` report has no cached blocks, and has lost none since it was last listed. `holdings.py` chooses the other
content. An older engine provides less, and the report then has less.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from engine_agent.contracts.protocol import canonical_json
from engine_agent.contracts.wire import Report, ReportKind
from engine_agent.sidecar.holder import Holder
from engine_agent.sidecar.holdings import PairsTold, formats_most, pins_most

LEVELS_SECONDS = 10.0  # while requests arrive
QUIET_LEVELS_SECONDS = 60.0
GAPS_SECONDS = 60.0
MOST_NAMESPACES = 64  # forecast each time; the others follow the next time
ASKED_AT_ONCE = 4  # namespaces per call, because each takes the holder some time
MOST_GAPS_BYTES = 64 * 1024  # of a report
MOST_LEVELS = 4_000  # namespaces of a report: those with the most cached bytes
Tell = Callable[[Sequence[Report]], Awaitable[None]]


class LevelTeller:
    """The reporter of `levels` and `gaps`.

    `at` returns unix seconds by the control plane's clock. `traffic` holds the namespaces with requests since their
    last forecast; `waiting` returns how many reports of a kind are still to be sent.
    """

    def __init__(
        self,
        holder: Holder,
        *,
        tell: Tell,
        waiting: Callable[[ReportKind], int],
        traffic: "OrderedDict[str, None]",
        at: Callable[[], float],
    ) -> None:
        self._holder, self._tell, self._waiting, self._traffic, self._at = holder, tell, waiting, traffic, at
        self._levels_at = self._gaps_at = float("-inf")
        self._told: tuple[str, Mapping[str, Any]] = ("", {})  # boot, and the last reported levels by namespace
        self._pairs = PairsTold()

    async def look(self, now: float, *, is_busy: bool) -> None:
        """Spool the reports that are due. `is_busy`: requests were reported since the last call. Raise HolderError."""
        wait = LEVELS_SECONDS if is_busy else QUIET_LEVELS_SECONDS
        if now >= self._levels_at + wait and not self._waiting("levels"):
            self._levels_at = now
            await self._tell_levels()
        if self._traffic and now >= self._gaps_at + GAPS_SECONDS and not self._waiting("gaps"):
            self._gaps_at = now
            await self._tell_gaps()

    async def _tell_levels(self) -> None:
        levels = await self._holder.levels()
        if levels is None:
            return
        boot, reported = self._told
        reported_levels = _named(levels["namespaces"], reported if boot == levels["boot"] else {})
        pairs = self._pairs.of(levels["boot"])
        report = {
            **levels,
            **_holdings(levels, reported_levels, pairs),
            "at": self._at(),
            "namespaces": reported_levels,
        }
        await self._tell([Report("levels", report)])
        self._pairs = pairs.after(report.get("evictions", ()))
        self._told = (levels["boot"], {**(reported if boot == levels["boot"] else {}), **reported_levels})

    async def _tell_gaps(self) -> None:
        namespaces = list(islice(self._traffic, MOST_NAMESPACES))
        for start in range(0, len(namespaces), ASKED_AT_ONCE):
            batch = namespaces[start : start + ASKED_AT_ONCE]
            gaps = await self._holder.gaps(batch)
            for namespace in batch:
                self._traffic.pop(namespace, None)
            if gaps and gaps["namespaces"]:
                await self._tell([*_gaps_reports({**gaps, "at": self._at()})])


def _holdings(levels: Mapping[str, Any], reported_levels: Mapping[str, Any], pairs: PairsTold) -> dict[str, Any]:
    """Return the evictions, formats and pins, as far as the engine provides them."""
    report: dict[str, Any] = {}
    if "evictions" in levels:
        report["evictions"] = pairs.due(levels["evictions"])
    if "formats" in levels:
        report["formats"] = formats_most(levels["formats"], reported_levels)
    if "pins" in levels:
        report["pins"] = pins_most(levels["pins"])
    return report


def _named(levels: Mapping[str, Any], reported: Mapping[str, Any]) -> dict[str, Any]:
    new = [(name, level) for name, level in levels.items() if _held(level) or level != reported.get(name)]
    return dict(sorted(new, key=lambda named_level: -_held(named_level[1]))[:MOST_LEVELS])


def _held(level: Mapping[str, Any]) -> int:
    return int(level["resident_bytes"] + level["host_bytes"])


def _gaps_reports(report: Mapping[str, Any]) -> Iterator[Report]:
    """Split the report so that each part fits. One namespace never exceeds the limit."""
    part: dict[str, Any] = {}
    room = MOST_GAPS_BYTES
    for name, gaps in report["namespaces"].items():
        size = len(canonical_json({name: gaps}))
        if part and size > room:
            yield Report("gaps", {**report, "namespaces": part})
            part, room = {}, MOST_GAPS_BYTES
        part[name] = gaps
        room -= size
    yield Report("gaps", {**report, "namespaces": part})
