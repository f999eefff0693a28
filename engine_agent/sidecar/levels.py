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
        found = await self._holder.levels()
        if found is None:
            return
        boot, told = self._told
        named = _named(found["namespaces"], told if boot == found["boot"] else {})
        pairs = self._pairs.of(found["boot"])
        report = {**found, **_holdings(found, named, pairs), "at": self._at(), "namespaces": named}
        await self._tell([Report("levels", report)])
        self._pairs = pairs.after(report.get("evictions", ()))
        self._told = (found["boot"], {**(told if boot == found["boot"] else {}), **named})

    async def _tell_gaps(self) -> None:
        asked = list(islice(self._traffic, MOST_NAMESPACES))
        for start in range(0, len(asked), ASKED_AT_ONCE):
            some = asked[start : start + ASKED_AT_ONCE]
            found = await self._holder.gaps(some)
            for one in some:
                self._traffic.pop(one, None)
            if found and found["namespaces"]:
                await self._tell([*_gaps_reports({**found, "at": self._at()})])


def _holdings(found: Mapping[str, Any], named: Mapping[str, Any], pairs: PairsTold) -> dict[str, Any]:
    """Return the evictions, formats and pins, as far as the engine provides them."""
    told: dict[str, Any] = {}
    if "evictions" in found:
        told["evictions"] = pairs.due(found["evictions"])
    if "formats" in found:
        told["formats"] = formats_most(found["formats"], named)
    if "pins" in found:
        told["pins"] = pins_most(found["pins"])
    return told


def _named(found: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    new = [(name, one) for name, one in found.items() if _held(one) or one != told.get(name)]
    return dict(sorted(new, key=lambda one: -_held(one[1]))[:MOST_LEVELS])


def _held(one: Mapping[str, Any]) -> int:
    return int(one["resident_bytes"] + one["host_bytes"])


def _gaps_reports(told: Mapping[str, Any]) -> Iterator[Report]:
    """Split the report so that each part fits. One namespace never exceeds the limit."""
    part: dict[str, Any] = {}
    room = MOST_GAPS_BYTES
    for name, one in told["namespaces"].items():
        size = len(canonical_json({name: one}))
        if part and size > room:
            yield Report("gaps", {**told, "namespaces": part})
            part, room = {}, MOST_GAPS_BYTES
        part[name] = one
        room -= size
    yield Report("gaps", {**told, "namespaces": part})
