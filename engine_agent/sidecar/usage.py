"""Read the holder's journal and report its usage, each record exactly once, whatever process crashes.

Rows and the position in the journal go into the spool in one line, so both are on disk or neither. The journal is cut
when the control plane has everything reported from it, so that a lost spool does no harm, or when it has grown too
large. While the control plane is unreachable little is reported: the records wait in the journal until it grows too
large.

The control plane knows up to where each boot is counted. If its number differs from the reported one, later records are
read again. So a home folder that is lost or restored from a copy loses nothing that the journal still has.
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
PRESSING_BYTES = 256 * 2**20  # size of a journal that waits no longer: rows of minutes are far smaller
MOST_PAGES = 40  # of one call
CUT_RECORDS = 1_000  # at least; the journal is cut by whole segments anyway
Tell = Callable[[Sequence[Report], Mapping[str, Any]], Awaitable[None]]


class UsageReader:
    """The reader of one holder's journal.

    `marks` is the spool's value of MARK. `tell` returns when all reports are on disk; `may_tell` is called before.
    `waits` returns whether a report is not acknowledged yet.
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
        self._marks = {boot: mark_read(mark) for boot, mark in (marks or {}).items()}
        self._folds: dict[str, BootFold] = {}
        self._cut: dict[str, int] = {}
        self._held: set[str] = set()  # boots that are not reported until no report waits
        self._reading = asyncio.Lock()
        self._pages_left = 0
        self.is_busy = False  # the last call found something to report
        self.traffic: OrderedDict[str, None] = OrderedDict()  # namespaces with reported usage of customers

    async def stand(self, boot: str, upto: int) -> None:
        """Read a boot again after record `upto`, because the control plane has counted no further.

        Reading starts when the reports that still wait are answered. The position is on disk when this returns.
        """
        async with self._reading:
            log.warning("boot %s is read again from record %d: that is how far it is counted", boot, upto)
            self._folds.pop(boot, None)
            await self._told((), boot, Mark(upto, 1, None, self._mark(boot).born))
            self._held.add(boot)

    async def look(self) -> None:
        """Report all records that exist now. Raise HolderError."""
        async with self._reading:
            await self._look()

    async def _look(self) -> None:
        boots = await self._holder.journal()
        self._forget_all_but(boots)
        self._pages_left = MOST_PAGES
        is_pressing = sum(boot.size_bytes for boot in boots) > PRESSING_BYTES
        has_told = False
        for boot in boots:
            try:
                has_told |= await self._follow(boot, is_pressing=is_pressing)
            except HolderRejected as problem:  # the boot's journal has been deleted
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
            # It has counted records that may not be reported: read again from the mark.
            self._folds.pop(boot.boot, None)
            raise

    async def _count(self, boot: JournalBoot, fold: BootFold, page: JournalPage) -> bool:
        ranges = fold.take(page)
        if not boot.is_current and page.last >= boot.last:
            ranges += fold.end(boot.last)
        if not ranges and not fold.is_over:
            return False  # records are being read again
        await self._told(usage_reports(boot.boot, fold.born, ranges, page.totals), boot.boot, fold.mark)
        self._note(namespace for record_range in ranges for namespace in record_range.rows.namespaces)
        return bool(ranges)

    async def _told(self, reports: Sequence[Report], boot: str, mark: Mark) -> None:
        marks = {**self._marks, boot: mark}
        await self._tell(reports, {MARK: {name: mark_document(boot_mark) for name, boot_mark in marks.items()}})
        self._marks = marks

    async def _cut_needless(self, boot: JournalBoot, *, is_pressing: bool) -> None:
        if self._waits() and not is_pressing:
            return
        mark = self._mark(boot.boot)
        upto = boot.last if mark.is_over else mark.needless
        if upto - self._cut.get(boot.boot, 0) >= CUT_RECORDS or (mark.is_over and self._is_done(boot)):
            await self._holder.journal_cut(boot.boot, upto)
            self._cut[boot.boot] = upto

    # Known boots

    def _mark(self, boot: str) -> Mark:
        return self._marks.get(boot, Mark())

    def _fold(self, boot: str) -> BootFold:
        if boot not in self._folds:
            self._folds[boot] = BootFold(self._mark(boot))
        return self._folds[boot]

    async def _is_another(self, boot: str) -> bool:
        """Return whether a journal shorter than reported is another one.

        Otherwise a power loss took only its last records.
        """
        born = self._mark(boot).born
        first = await self._holder.journal_page(boot, 0, 1)
        return any(entry.sequence == 1 and checksum(entry) != born for entry in first.entries)

    def _begin_anew(self, boot: str) -> None:
        """Forget the boot's marks, because its journal was lost and a new one has the same name."""
        log.warning("boot %s has another journal than was read: it is read from its beginning", boot)
        for by_boot in (self._marks, self._folds, self._cut):
            by_boot.pop(boot, None)

    def _forget_all_but(self, boots: Iterable[JournalBoot]) -> None:
        existing_boots = {boot.boot for boot in boots}
        for by_boot in (self._marks, self._folds, self._cut):
            for boot in by_boot.keys() - existing_boots:
                del by_boot[boot]

    def _note(self, namespaces: Iterable[str]) -> None:
        for namespace in namespaces:
            self.traffic[namespace] = None
