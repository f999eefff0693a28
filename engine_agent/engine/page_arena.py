"""One tier's bytes, and operations on whole pages within them: copy, move, zero, in the given order.

Pages are identified by their ids; the storage (`cache.pool.Arena`) determines where a page lies.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from engine_agent.cache.errors import InvalidValue
from engine_agent.cache.operations import Copy, Move, Tier, Zero
from engine_agent.cache.pool import Arena
from engine_agent.engine.errors import BadSetting
from kernels.layout import PageLayout
from kernels.page_copy import copy_rounds, page_copy
from kernels.page_zero import page_zero

Rewrite = Copy | Move | Zero
SETTINGS: Mapping[Tier, str] = {"device": "pool_bytes", "host": "host_bytes"}


class PageArena:
    """The bytes of one tier. On a CPU, unused bytes take no memory, because nothing touches them before first use.

    Raises BadSetting for a size that cannot be allocated or has no room for a page.
    """

    def __init__(
        self, layouts: Mapping[str, PageLayout], capacity_bytes: int, *, tier: Tier, device: torch.device, pinned: bool
    ) -> None:
        self.page_bytes = {kv_format: layout.page_bytes for kv_format, layout in layouts.items()}
        try:
            self.storage = Arena(capacity_bytes, self.page_bytes, tier=tier)
            self.bytes = _memory(self.storage.capacity_bytes, device, pinned=pinned)
        except (InvalidValue, RuntimeError) as problem:
            raise BadSetting(SETTINGS[tier], _complaint(problem, capacity_bytes, self.page_bytes)) from problem
        self.stride = self.storage.stride

    def offsets(self, pages: Iterable[int], kv_format: str) -> list[int]:
        """Return the offsets of pages, without checks: for pages that the storage allocated in this format."""
        size, stride = self.page_bytes[kv_format], self.stride
        gap = self.storage.slab_bytes - stride * size  # the bytes of a slab beyond one page for each id
        if not gap:
            return [page * size for page in pages]
        return [page * size + page // stride * gap for page in pages]

    def rewrite(self, kv_format: str, operations: Iterable[Rewrite]) -> None:
        """Carry out operations of one format in this tier. Zeroing is deferred past earlier copies, into one call."""
        sources: list[int] = []
        targets: list[int] = []
        emptied: dict[int, None] = {}
        for operation in operations:
            if isinstance(operation, Zero):
                emptied.update(dict.fromkeys(operation.pages))
                continue
            source, target = ends(operation)
            if source in emptied or target in emptied:
                self._flush(kv_format, sources, targets, emptied)
            sources.append(source)
            targets.append(target)
        self._flush(kv_format, sources, targets, emptied)

    def copy(self, kv_format: str, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy pages, in order where the order matters."""
        size = self.page_bytes[kv_format]
        begins, ends = self.offsets(sources, kv_format), self.offsets(targets, kv_format)
        for index in copy_rounds(begins, ends, size):
            page_copy(self.bytes, begins[index], ends[index], size)

    def zero(self, kv_format: str, pages: Sequence[int]) -> None:
        page_zero(self.bytes, self.offsets(pages, kv_format), self.page_bytes[kv_format])

    def _flush(self, kv_format: str, sources: list[int], targets: list[int], emptied: dict[int, None]) -> None:
        if sources:
            self.copy(kv_format, sources, targets)
        if emptied:
            self.zero(kv_format, list(emptied))
        sources.clear()
        targets.clear()
        emptied.clear()


def ends(operation: Copy | Move) -> tuple[int, int]:
    """Return the page that an operation reads and the page that it writes."""
    if isinstance(operation, Copy):
        return operation.source, operation.target
    return operation.source_page, operation.target_page


def _memory(size: int, device: torch.device, *, pinned: bool) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device, pin_memory=pinned)


def _complaint(problem: Exception, capacity_bytes: int, page_bytes: Mapping[str, int]) -> str:
    if isinstance(problem, InvalidValue):
        largest = max(page_bytes, key=page_bytes.__getitem__)
        return f"{capacity_bytes:,} bytes have no room for a page of {largest}, {page_bytes[largest]:,} bytes"
    return f"{capacity_bytes:,} bytes cannot be had here"
