"""One tier's bytes, and what is done to whole pages within them: copied, moved, zeroed, in the order given.

Pages are known by their ids; where one lies is the storage's word (`cache.pool.Arena`).
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
    """`bytes` is not touched before it is used, so on a CPU what was never used takes no memory. Raises BadSetting for
    a size that cannot be had, or has no room for a page.
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
        """Where they begin. Nothing is checked: for pages that the storage gave out in this format."""
        size, stride = self.page_bytes[kv_format], self.stride
        gap = self.storage.slab_bytes - stride * size  # what a slab has besides as many pages as it has ids
        if not gap:
            return [page * size for page in pages]
        return [page * size + page // stride * gap for page in pages]

    def rewrite(self, kv_format: str, operations: Iterable[Rewrite]) -> None:
        """All of one format and this tier. Zeroing waits for the copies before it, so that many are one call."""
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
        """One after the other, as far as that makes a difference."""
        size = self.page_bytes[kv_format]
        begins, ends = self.offsets(sources, kv_format), self.offsets(targets, kv_format)
        for one in copy_rounds(begins, ends, size):
            page_copy(self.bytes, begins[one], ends[one], size)

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
    """The page it reads and the one it writes."""
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
