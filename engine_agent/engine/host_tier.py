"""The host tier: stores demoted blocks in host memory during the engine's steps, and checks them on their return.

One thread carries out jobs in the given order, and nothing else touches the host's bytes, so no page of the host is
overwritten or read too early. On the device it writes only the pages of a load; `KvPages` makes sure that nothing uses
them before they are reported. A demoted page is first copied to a staging buffer, so that the page can be overwritten,
and its checksum is computed there. A load is checked at its destination.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Thread

import torch
from torch import Tensor

from engine_agent.cache.operations import Demote, Load
from engine_agent.engine.page_arena import PageArena, Rewrite
from kernels.layout import PageLayout
from kernels.page_checksum import page_checksum
from kernels.page_copy import copy_rounds, page_copy

LOG = logging.getLogger(__name__)
ASIDE_BYTES = 4 << 20  # of one batch on its way down; there are two buffers, so that one fills while the other empties
UNKNOWN = 0  # a page has this checksum only with a chance of one in 2**64

Job = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A device page that a load has written. Not sound: its content differs from what was demoted."""

    kv_format: str
    page: int
    is_sound: bool


class HostArena(PageArena):
    """The host's pages, each with a checksum by its id: 8 bytes, allocated on first use."""

    def __init__(self, layouts: Mapping[str, PageLayout], capacity_bytes: int, *, pinned: bool) -> None:
        super().__init__(layouts, capacity_bytes, tier="host", device=torch.device("cpu"), pinned=pinned)
        self.checksums = torch.zeros(self.storage.slabs * self.stride, dtype=torch.int64)

    def copy(self, kv_format: str, sources: Sequence[int], targets: Sequence[int]) -> None:
        super().copy(kv_format, sources, targets)
        for index in copy_rounds(sources, targets, 1):
            self.checksums[targets[index]] = self.checksums[sources[index]]

    def zero(self, kv_format: str, pages: Sequence[int]) -> None:
        super().zero(kv_format, pages)
        self.checksums[pages] = UNKNOWN


class HostTier:
    """The host's pages and the thread that copies them. The thread calls `on_loaded` when loads have arrived."""

    def __init__(self, device: PageArena, host: HostArena, *, on_loaded: Callable[[], None]) -> None:
        self.host = host
        self.loaded: SimpleQueue[list[Loaded]] = SimpleQueue()
        self._device = device
        self._on_loaded = on_loaded
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._aside: SimpleQueue[Tensor] = SimpleQueue()
        room = max(ASIDE_BYTES, *host.page_bytes.values())
        for _ in range(2):
            self._aside.put(torch.empty(room, dtype=torch.uint8, device=device.bytes.device))
        self._stream = torch.cuda.Stream(device.bytes.device) if device.bytes.is_cuda else None
        self._thread = Thread(target=self._work, name="luminet-host-tier", daemon=True)
        self._thread.start()

    # Called by the engine's thread

    def demote(self, kv_format: str, demotions: Sequence[Demote], *, spoilt: Collection[tuple[str, int]]) -> None:
        """Copy pages to the staging buffer. Afterwards the device's pages may be overwritten.

        Pages in `spoilt` are stored as damaged.
        """
        size = self._device.page_bytes[kv_format]
        batch_size = max(ASIDE_BYTES // size, 1)
        for first in range(0, len(demotions), batch_size):
            batch = demotions[first : first + batch_size]
            buffer = self._aside.get()
            begins = self._device.offsets((demotion.page for demotion in batch), kv_format)
            page_copy(self._device.bytes, begins, [number * size for number in range(len(batch))], size, into=buffer)
            unsound = [demotion.host_page for demotion in batch if (kv_format, demotion.page) in spoilt]
            self.submit(self._storing(kv_format, buffer, [demotion.host_page for demotion in batch], unsound))

    def load(self, kv_format: str, loads: Sequence[Load]) -> None:
        """Start loads. `loaded` gets one answer for all of them, whatever happens."""
        self.submit(self._loading(kv_format, [load.host_page for load in loads], [load.page for load in loads]))

    def rewrite(self, kv_format: str, operations: Sequence[Rewrite]) -> None:
        self.submit(lambda: self.host.rewrite(kv_format, operations))

    def submit(self, job: Job) -> None:
        """Queue a job after all earlier jobs."""
        self._jobs.put(job)

    def settle(self) -> None:
        """Wait until all queued jobs are done."""
        done = Event()
        self.submit(done.set)
        done.wait()

    def close(self) -> None:
        """Finish the queued jobs and stop the thread."""
        self._jobs.put(None)
        self._thread.join()

    # In the tier's thread

    def _work(self) -> None:
        on_stream: AbstractContextManager[object] = torch.cuda.stream(self._stream) if self._stream else nullcontext()
        with on_stream:
            while (job := self._jobs.get()) is not None:
                try:
                    job()
                except Exception:
                    LOG.exception("a copy between device and host failed: what it was to bring is not served")

    def _storing(self, kv_format: str, buffer: Tensor, host_pages: Sequence[int], unsound: Sequence[int]) -> Job:
        size, wait = self.host.page_bytes[kv_format], self._after_engine()

        def store() -> None:
            self.host.checksums[host_pages] = UNKNOWN
            try:
                wait()
                begins = [number * size for number in range(len(host_pages))]
                checksums = page_checksum(buffer, begins, size)
                page_copy(buffer, begins, self.host.offsets(host_pages, kv_format), size, into=self.host.bytes)
                self.host.checksums[host_pages] = checksums.cpu()  # `cpu` also waits for the copy
                self.host.checksums[unsound] = UNKNOWN
            finally:
                self._aside.put(buffer)

        return store

    def _loading(self, kv_format: str, host_pages: Sequence[int], pages: Sequence[int]) -> Job:
        wait = self._after_engine()

        def load() -> None:
            sound = [False] * len(pages)
            try:
                wait()
                begins, ends = self.host.offsets(host_pages, kv_format), self._device.offsets(pages, kv_format)
                arrived = bring(self.host.bytes, begins, self._device.bytes, ends, self.host.page_bytes[kv_format])
                sound = (arrived.cpu() == self.host.checksums[host_pages]).tolist()
            finally:
                self.loaded.put(
                    [Loaded(kv_format, page, is_sound) for page, is_sound in zip(pages, sound, strict=True)]
                )
                self._on_loaded()

        return load

    def _after_engine(self) -> Job:
        """Return a function that makes a job wait for all earlier work of the engine on the device."""
        if self._stream is None:
            return lambda: None
        event = torch.cuda.current_stream(self._device.bytes.device).record_event()
        return lambda: torch.cuda.current_stream(self._device.bytes.device).wait_event(event)


def bring(host: Tensor, begins: Sequence[int], device: Tensor, ends: Sequence[int], size: int) -> Tensor:
    """Copy pages between the given offsets and return the checksums of the copies."""
    page_copy(host, begins, ends, size, into=device)
    return page_checksum(device, ends, size)
