"""The bytes of all pages in both tiers, and the block manager's operations on them before the next step.

Operations within the device are done when `run` returns, or ordered before the next step on its stream. Copies between
tiers run during the steps (`host_tier.py`): no request runs before its pages are ready, and a load with a wrong
checksum is reported and never served.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from queue import Empty
from statistics import median
from typing import Any

import torch
from torch import Tensor

from engine_agent.cache.operations import Copy, Demote, Load, Move, Operation, Zero
from engine_agent.cache.pool import Arena
from engine_agent.engine.host_tier import HostArena, HostTier, Loaded, bring
from engine_agent.engine.page_arena import PageArena, ends
from kernels.layout import PageLayout

MEASURED_PAGES = 64
MEASURED_BYTES = 16 << 20  # fewer pages if they are large
MEASURED_TIMES = 3
_VERBS = {Copy: "copied", Move: "moved", Zero: "zeroed", Demote: "demoted", Load: "loaded"}


class KvPages:
    """The pages' bytes, for the engine's thread. The host tier exists once `open_host` was called."""

    def __init__(
        self,
        layouts: Mapping[str, PageLayout],
        *,
        device_bytes: int,
        host_bytes: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.layouts = dict(layouts)
        self.host_bytes = host_bytes
        self.on_loaded: Callable[[], None] = lambda: None  # called from another thread when loads have arrived
        self._pages = PageArena(layouts, device_bytes, tier="device", device=torch.device(device), pinned=False)
        self._host: HostTier | None = None
        self._flying: dict[int, str] = {}  # target pages of pending loads → format
        self._landed: list[Loaded] = []  # arrived and not yet reported
        self._spoilt: set[tuple[str, int]] = set()  # damaged pages that operations may still name
        self._counts = Counter(dict.fromkeys([*_VERBS.values(), "damaged"], 0))

    @property
    def arena(self) -> Tensor:
        """The device's bytes."""
        return self._pages.bytes

    @property
    def storages(self) -> tuple[Arena, ...]:
        """Return the storages for the block manager: the device's, and the host's if there is one."""
        host = (self._host.host.storage,) if self._host else ()
        return (self._pages.storage, *host)

    # The host tier

    @property
    def host_formats(self) -> tuple[str, ...]:
        """Return the formats that the host tier stores; none without a host tier."""
        return tuple(self._host.host.page_bytes) if self._host else ()

    def measure_load_seconds(self, kv_format: str) -> float:
        """Return the seconds per page from the host to the device, with its checksum, in a typical batch."""
        size = self.layouts[kv_format].page_bytes
        begins = [number * size for number in range(max(1, min(MEASURED_PAGES, MEASURED_BYTES // size)))]
        host = torch.zeros(len(begins) * size, dtype=torch.uint8, pin_memory=self.arena.is_cuda)
        device = torch.zeros(len(begins) * size, dtype=torch.uint8, device=self.arena.device)
        times = []
        for _ in range(1 + MEASURED_TIMES):
            began = time.perf_counter()
            bring(host, begins, device, begins, size).cpu()
            times.append(time.perf_counter() - began)
        return median(times[1:]) / len(begins)

    def worth_loading(self, prefill_seconds_per_token: float) -> list[str]:
        """Return the formats whose pages load faster than they are recomputed."""
        return [
            kv_format
            for kv_format, layout in self.layouts.items()
            if self.measure_load_seconds(kv_format) < prefill_seconds_per_token * layout.block_tokens
        ]

    def open_host(self, kv_formats: Collection[str] | None = None) -> None:
        """Open a host tier of `host_bytes` for pages of these formats, or of all. Call this before using `storages`."""
        assert self._host is None, "the host's tier is open"
        offered = {name: layout for name, layout in self.layouts.items() if kv_formats is None or name in kv_formats}
        if self.host_bytes and offered:
            host = HostArena(offered, self.host_bytes, pinned=self.arena.is_cuda)
            self._host = HostTier(self._pages, host, on_loaded=lambda: self.on_loaded())

    # Between steps

    def run(self, operations: Sequence[Operation]) -> None:
        """Carry out the operations in order. A page that a load is still writing waits for it first."""
        for (where, kv_format), batch in groupby(operations, key=_place):
            self._carry_out(where, kv_format, list(batch))
        if self._spoilt:  # all operations queued before the report are done now
            self._spoilt &= {(load.kv_format, load.page) for load in self._landed}

    def offsets(self, pages: Sequence[int], kv_format: str) -> list[int]:
        """Return the offsets of pages for a step.

        Waits for loads that still write into the memory of these pages; the requests of those loads have left.
        """
        self._await(pages, kv_format)
        return self._pages.offsets(pages, kv_format)

    def is_ready(self, pages: Sequence[int], kv_format: str) -> bool:
        """Return whether a sequence with this table may run.

        No load may be writing into its pages, or into memory that held them in another format before, and all loads
        that arrived must be reported.
        """
        if not self._flying and not self._landed:
            return True
        landed = {load.page for load in self._landed if load.kv_format == kv_format}
        return landed.isdisjoint(pages) and not self._is_awaited(pages, kv_format)

    @property
    def is_loading(self) -> bool:
        """Return whether loads are pending or unreported."""
        return bool(self._flying or self._landed)

    def finished_loads(self, *, wait_seconds: float = 0.0) -> list[Loaded]:
        """Return each finished load once. If none has arrived, wait up to `wait_seconds` for the first.

        Sequences with a page that is not sound must not run; `BlockManager.forget` returns them.
        """
        self._collect()
        if wait_seconds and self._flying and not self._landed:
            self._collect(wait_seconds)
        landed, self._landed = self._landed, []
        return landed

    def settle(self) -> None:
        """Wait until all operations are done in every tier, so that purged pages are really zeroed."""
        if self._host:
            self._host.settle()
        if self.arena.is_cuda:
            torch.cuda.current_stream(self.arena.device).synchronize()

    def close(self) -> None:
        if self._host:
            self._host.close()

    def stats(self) -> dict[str, Any]:
        """Return counts of pages since the start."""
        return {f"{verb}_pages": count for verb, count in self._counts.items()}

    def _carry_out(self, where: str, kv_format: str, batch: list[Any]) -> None:
        host = self._host
        for operation in batch:
            self._counts[_VERBS[type(operation)]] += len(operation.pages) if isinstance(operation, Zero) else 1
        if where != "host":
            self._await(list(_touched(batch)), kv_format)
        if where == "device":
            self._follow(kv_format, batch)
            self._pages.rewrite(kv_format, batch)
            return
        assert host, f"{batch[0]} without a host's tier"
        if where == "down":
            for demotions in _without_repeats(batch, lambda demotion: demotion.host_page):
                host.demote(kv_format, demotions, spoilt=self._spoilt)
        elif where == "up":
            for loads in _without_repeats(batch, lambda load: load.page):
                self._await([load.page for load in loads], kv_format)
                self._flying.update((load.page, kv_format) for load in loads)
                host.load(kv_format, loads)
        else:
            host.rewrite(kv_format, batch)

    def _follow(self, kv_format: str, batch: Sequence[Copy | Move | Zero]) -> None:
        """Mark the targets of damaged pages as damaged, too, if they are copied before the damage was reported."""
        for operation in batch if self._spoilt else ():
            if isinstance(operation, Zero):
                continue
            source, target = ends(operation)
            if (kv_format, source) in self._spoilt:
                self._spoilt.add((kv_format, target))
                self._landed.append(Loaded(kv_format, target, is_sound=False))

    def _await(self, pages: Sequence[int], kv_format: str) -> None:
        if self._flying:
            while self._is_awaited(pages, kv_format):
                self._collect(None)

    def _is_awaited(self, pages: Sequence[int], kv_format: str) -> bool:
        """Return whether a load is writing into one of these pages, or into its slab in another format."""
        if not self._flying.keys().isdisjoint(pages):
            return True
        stride = self._pages.stride
        cut_otherwise = {page // stride for page, loading_format in self._flying.items() if loading_format != kv_format}
        return bool(cut_otherwise) and any(page // stride in cut_otherwise for page in pages)

    def _collect(self, wait_seconds: float | None = 0.0) -> None:
        """Collect finished loads; None waits until there is one."""
        if self._host is None:
            return
        while self._flying:
            try:
                arrived = self._host.loaded.get(wait_seconds != 0.0, wait_seconds)
            except Empty:
                return
            for load in arrived:
                self._flying.pop(load.page, None)
                if not load.is_sound:
                    self._spoilt.add((load.kv_format, load.page))
                    self._counts["damaged"] += 1
            self._landed += arrived
            wait_seconds = 0.0


def _without_repeats(batch: Sequence[Any], target: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Split where a target repeats. The operations in one part may run at once."""
    part: dict[int, Any] = {}
    for operation in batch:
        if target(operation) in part:
            yield list(part.values())
            part = {}
        part[target(operation)] = operation
    if part:
        yield list(part.values())


def _place(operation: Operation) -> tuple[str, str]:
    """Return which part carries the operation out, and in which format."""
    match operation:
        case Demote():
            return "down", operation.kv_format
        case Load():
            return "up", operation.kv_format
        case Copy():
            return "device", operation.kv_format
        case Move() | Zero():
            return operation.tier, operation.kv_format


def _touched(batch: Iterable[Operation]) -> Iterator[int]:
    """Iterate over the device pages that these operations read or write."""
    for operation in batch:
        match operation:
            case Copy() | Move():
                yield from ends(operation)
            case Zero():
                yield from operation.pages
            case Demote() | Load():
                yield operation.page
