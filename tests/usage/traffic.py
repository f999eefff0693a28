"""`luminet simulate` whose engines keep journals on the disk, as real ones do: whatever is killed, the journal stays.

Beside them are production's sidecars, in the same process. Some requests never end. `JOURNALS` names the folder; with
`BOOT` every engine has that boot, whatever was there before. SIGUSR1 ends the traffic.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine_agent.journal.journal import Journal, JournalError
from engine_agent.journal.records import Closed, Opened
from engine_agent.sidecar import simulate
from engine_agent.sidecar.holder import HolderRejected, JournalBoot, JournalPage
from engine_agent.sidecar.simulated import SimulatedHolder
from engine_agent.sidecar.simulated_journal import SimulatedJournal

JOURNALS, BOOT = "LUMINET_TEST_JOURNALS", "LUMINET_TEST_BOOT"
SEGMENT_BYTES = 32 * 1024  # small, so that much is cut
MOST_BYTES = 1024**3
EVERY_SECONDS = 0.02
ENDLESS = 50  # one of so many requests has no end


QUIET = threading.Event()  # SIGUSR1: no more requests from now on


class DiskJournal(SimulatedJournal):
    """What it records goes to the disk, and nowhere else."""

    def keep_in(self, disk: Journal) -> None:
        self._disk = disk

    def _record(self, record: Opened | Closed) -> int:
        if isinstance(record, Closed):
            return 0 if record.opened % ENDLESS == 0 else self._disk.closed(record) or 0
        return self._disk.opened(record)


class JournalledHolder(SimulatedHolder):
    def __init__(self, name: str, *, labels: Mapping[str, str], traffic: float = 0.0) -> None:
        super().__init__(name, labels=labels, traffic=traffic)
        self._engine.boot = os.environ.get(BOOT) or self._engine.boot
        folder = Path(os.environ[JOURNALS]) / name / "journal"
        self._disk = Journal.open(folder, self._engine.boot, most_bytes=MOST_BYTES, segment_bytes=SEGMENT_BYTES)
        self._simulated = DiskJournal(self._engine.boot, traffic)
        self._simulated.keep_in(self._disk)
        self._serving: asyncio.Task[None] | None = None

    async def _serve(self) -> None:
        while self._simulated.rate and not QUIET.is_set():
            self._simulated.go_on(self._engine.asked(), now=self._clock(), at=self._now())
            await asyncio.sleep(EVERY_SECONDS)

    async def journal(self) -> Sequence[JournalBoot]:
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        boots = self._disk.boots()
        return [JournalBoot(one.boot, one.last, one.size_bytes, one.is_current) for one in boots]

    async def journal_page(self, boot: str, after: int, limit: int) -> JournalPage:
        try:
            page = self._disk.since(boot, after, limit)
        except JournalError as problem:
            raise HolderRejected(str(problem)) from None
        return JournalPage(page.last, page.entries, [(one.first, one.last) for one in page.lost])

    async def journal_cut(self, boot: str, upto: int) -> None:
        try:
            self._disk.cut(boot, upto)
        except JournalError as problem:
            raise HolderRejected(str(problem)) from None

    async def levels(self) -> Mapping[str, Any] | None:
        return None


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda number, frame: QUIET.set())
    vars(simulate)["SimulatedHolder"] = JournalledHolder
    sys.exit(simulate.main())
