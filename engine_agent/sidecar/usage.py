"""Reads its holder's journal and tells what it comes to, each record once, whatever dies in between.

Rows and how far the journal is read go into the spool in one line, so both are on disk or neither. The journal is cut
when the control plane has all that was told of it, so that a spool may be lost; or when it has grown too large. While
the control plane is away little is told: the journal itself waits, until it grows too large.

Up to where each boot is counted, the control plane knows: where it says another number than was told, what is behind
that is read again. So a home that was brought back from a copy, or lost, costs nothing that the journal still holds.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from engine_agent.contracts.wire import Report
from engine_agent.sidecar.folding import BootFold, Mark, checksum, mark_document, mark_read, usage_reports
from engine_agent.sidecar.holder import Holder, HolderRejected, JournalBoot, JournalPage

log = logging.getLogger("luminet.sidecar")
MARK = "usage"  # in the spool: {boot: a Mark as mark_document has it}
PAGE_RECORDS = 5_000
MOST_UNACKNOWLEDGED = 8  # reports; then the journal waits
PRESSING_BYTES = 256 * 2**20  # of a journal that waits no more: rows of minutes are far smaller
MOST_PAGES = 40  # of one look
CUT_RECORDS = 1_000  # it is cut by segments anyway
Tell = Callable[[Sequence[Report], Mapping[str, Any]], Awaitable[None]]


class UsageReader:
    """`marks`: what the spool has of MARK. `tell` returns when all of it is on disk; `may_tell` is asked before.
    `waits`: whether something that was told is not acknowledged yet.
    """

    def __init__(
        self,
        holder: Holder,
        marks: Mapping[str, Sequence[Any]] | None,
        *,
        tell: Tell,
        may_tell: Callable[[], bool],
        waits: Callable[[], bool],
    ) -> None:
        self._holder, self._tell, self._may_tell, self._waits = holder, tell, may_tell, waits
        self._marks = {boot: mark_read(told) for boot, told in (marks or {}).items()}
        self._folds: dict[str, BootFold] = {}
        self._cut: dict[str, int] = {}
        self._held: set[str] = set()  # boots of which nothing is told until nothing waits
        self._reading = asyncio.Lock()
        self._pages_left = 0
        self.is_busy = False  # the last look found something to tell
        self.traffic: OrderedDict[str, None] = OrderedDict()  # namespaces of which customers' rows were told

    async def stand(self, boot: str, upto: int) -> None:
        """The control plane has that boot's records up to there, and did not count what it was told since: all behind
        is read again, when what still waits has been answered. Known on disk when it returns."""
        async with self._reading:
            log.warning("boot %s is read again from record %d: that is how far it is counted", boot, upto)
            self._folds.pop(boot, None)
            await self._told((), boot, Mark(upto, 1, None, self._mark(boot).born))
            self._held.add(boot)

    async def look(self) -> None:
        """At all that is there now. Raises HolderError."""
        async with self._reading:
            await self._look()

    async def _look(self) -> None:
        boots = await self._holder.journal()
        self._forget_all_but(boots)
        self._pages_left = MOST_PAGES
        is_pressing = sum(one.size_bytes for one in boots) > PRESSING_BYTES
        has_told = False
        for boot in boots:
            try:
                has_told |= await self._follow(boot, is_pressing=is_pressing)
            except HolderRejected as problem:  # it is gone by now
                log.debug("the journal of boot %s: %s", boot.boot, problem)
        self.is_busy = has_told

    async def _follow(self, boot: JournalBoot, *, is_pressing: bool) -> bool:
        has_told = False
        await self._cut_needless(boot, is_pressing=is_pressing)
        if boot.last < self._mark(boot.boot).upto and await self._is_another(boot.boot):
            self._begin_anew(boot.boot)
        if boot.boot in self._held and self._waits():
            return False
        self._held.discard(boot.boot)
        while not self._is_done(boot) and self._pages_left and (is_pressing or self._may_tell()):
            self._pages_left -= 1
            has_told |= await self._read(boot)
        await self._cut_needless(boot, is_pressing=is_pressing)
        return has_told

    def _is_done(self, boot: JournalBoot) -> bool:
        mark = self._mark(boot.boot)
        return mark.upto >= boot.last and (boot.is_current or mark.is_over)

    async def _read(self, boot: JournalBoot) -> bool:
        fold = self._fold(boot.boot)
        page = await self._holder.journal_page(boot.boot, fold.after, PAGE_RECORDS)
        if not fold.is_of(page):
            self._begin_anew(boot.boot)
            return False
        try:
            return await self._count(boot, fold, page)
        except BaseException:
            self._folds.pop(boot.boot, None)  # it has taken what may not be told: all is read again from the mark
            raise

    async def _count(self, boot: JournalBoot, fold: BootFold, page: JournalPage) -> bool:
        ranges = fold.take(page)
        if not boot.is_current and page.last >= boot.last:
            ranges += fold.end(boot.last)
        if not ranges and not fold.is_over:
            return False  # it is read again
        await self._told(usage_reports(boot.boot, fold.born, ranges, page.totals), boot.boot, fold.mark)
        self._note(namespace for one in ranges for namespace in one.rows.namespaces)
        return bool(ranges)

    async def _told(self, reports: Sequence[Report], boot: str, mark: Mark) -> None:
        marks = {**self._marks, boot: mark}
        await self._tell(reports, {MARK: {name: mark_document(one) for name, one in marks.items()}})
        self._marks = marks

    async def _cut_needless(self, boot: JournalBoot, *, is_pressing: bool) -> None:
        if self._waits() and not is_pressing:
            return
        mark = self._mark(boot.boot)
        upto = boot.last if mark.is_over else mark.needless
        if upto - self._cut.get(boot.boot, 0) >= CUT_RECORDS or (mark.is_over and self._is_done(boot)):
            await self._holder.journal_cut(boot.boot, upto)
            self._cut[boot.boot] = upto

    # What is known of boots

    def _mark(self, boot: str) -> Mark:
        return self._marks.get(boot, Mark())

    def _fold(self, boot: str) -> BootFold:
        if boot not in self._folds:
            self._folds[boot] = BootFold(self._mark(boot))
        return self._folds[boot]

    async def _is_another(self, boot: str) -> bool:
        """There is less than was told: power was lost, and the last records with it, or all of the journal was."""
        born = self._mark(boot).born
        first = await self._holder.journal_page(boot, 0, 1)
        return any(entry.sequence == 1 and checksum(entry) != born for entry in first.entries)

    def _begin_anew(self, boot: str) -> None:
        """Its journal was lost, and another has begun by its name: all in that is new."""
        log.warning("boot %s has another journal than was read: it is read from its beginning", boot)
        for known in (self._marks, self._folds, self._cut):
            known.pop(boot, None)

    def _forget_all_but(self, boots: Iterable[JournalBoot]) -> None:
        there = {one.boot for one in boots}
        for known in (self._marks, self._folds, self._cut):
            for boot in known.keys() - there:
                del known[boot]

    def _note(self, namespaces: Iterable[str]) -> None:
        for namespace in namespaces:
            self.traffic[namespace] = None
