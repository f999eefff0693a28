"""The bytes of all pages, in both tiers, and whatever the block manager wants done to them before the next step.

Within the device everything is done when `run` returns, or comes before the next step on its stream. Between the tiers
pages travel beside the steps (`host_tier.py`): nobody may run whose pages are not ready, and a load that brought
something else than was demoted is reported, never served.
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
MEASURED_BYTES = 16 << 20  # fewer pages of large ones
MEASURED_TIMES = 3
_VERBS = {Copy: "copied", Move: "moved", Zero: "zeroed", Demote: "demoted", Load: "loaded"}


class KvPages:
    """Called by the engine's thread. The host's tier is there once `open_host` was called."""

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
        self._flying: dict[int, str] = {}  # pages that a load is on its way to, and their format
        self._landed: list[Loaded] = []  # arrived, and not reported yet
        self._spoilt: set[tuple[str, int]] = set()  # pages that are not sound, though operations may still name them
        self._counts = Counter(dict.fromkeys([*_VERBS.values(), "damaged"], 0))

    @property
    def arena(self) -> Tensor:
        """The device's bytes."""
        return self._pages.bytes

    @property
    def storages(self) -> tuple[Arena, ...]:
        """For the block manager: the device's, and the host's if there is one."""
        host = (self._host.host.storage,) if self._host else ()
        return (self._pages.storage, *host)

    # The host's tier

    @property
    def host_formats(self) -> tuple[str, ...]:
        """The formats that it keeps; none without it."""
        return tuple(self._host.host.page_bytes) if self._host else ()

    def measure_load_seconds(self, kv_format: str) -> float:
        """How long a page takes from the host to the device, with its checksum: of several together, as they come."""
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
        """The formats whose pages are loaded sooner than they are computed again."""
        return [
            kv_format
            for kv_format, layout in self.layouts.items()
            if self.measure_load_seconds(kv_format) < prefill_seconds_per_token * layout.block_tokens
        ]

    def open_host(self, kv_formats: Collection[str] | None = None) -> None:
        """A tier of `host_bytes` for pages of these formats, or of all. Before `storages` are given away."""
        assert self._host is None, "the host's tier is open"
        offered = {name: one for name, one in self.layouts.items() if kv_formats is None or name in kv_formats}
        if self.host_bytes and offered:
            host = HostArena(offered, self.host_bytes, pinned=self.arena.is_cuda)
            self._host = HostTier(self._pages, host, on_loaded=lambda: self.on_loaded())

    # Between steps

    def run(self, operations: Sequence[Operation]) -> None:
        """Carry out, in this order. A page that a load is on its way to waits for it before it is touched."""
        for (where, kv_format), batch in groupby(operations, key=_place):
            self._carry_out(where, kv_format, list(batch))
        if self._spoilt:  # whatever was asked for before those were reported is done now
            self._spoilt &= {(one.kv_format, one.page) for one in self._landed}

    def offsets(self, pages: Sequence[int], kv_format: str) -> list[int]:
        """Where they begin, for a step that uses them. Waits for a load to memory that these pages have taken over:
        whoever it was for has left.
        """
        self._await(pages, kv_format)
        return self._pages.offsets(pages, kv_format)

    def is_ready(self, pages: Sequence[int], kv_format: str) -> bool:
        """Whether a sequence with this table may run: nothing is on its way into its pages, or into memory that was
        theirs in another format a moment ago, and what arrived was reported.
        """
        if not self._flying and not self._landed:
            return True
        landed = {one.page for one in self._landed if one.kv_format == kv_format}
        return landed.isdisjoint(pages) and not self._is_awaited(pages, kv_format)

    @property
    def is_loading(self) -> bool:
        """Whether there is, or will be, something to report."""
        return bool(self._flying or self._landed)

    def finished_loads(self, *, wait_seconds: float = 0.0) -> list[Loaded]:
        """Each load once; with `wait_seconds`, so long for the first if nothing has arrived. Whoever has a page that
        is not sound must not run: ask `BlockManager.forget` who that is.
        """
        self._collect()
        if wait_seconds and self._flying and not self._landed:
            self._collect(wait_seconds)
        landed, self._landed = self._landed, []
        return landed

    def settle(self) -> None:
        """All that was asked for is done, in every tier: what a purge zeroed is zeroed."""
        if self._host:
            self._host.settle()
        if self.arena.is_cuda:
            torch.cuda.current_stream(self.arena.device).synchronize()

    def close(self) -> None:
        if self._host:
            self._host.close()

    def stats(self) -> dict[str, Any]:
        """Pages, counted since the start."""
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
            for demotions in _without_repeats(batch, lambda one: one.host_page):
                host.demote(kv_format, demotions, spoilt=self._spoilt)
        elif where == "up":
            for loads in _without_repeats(batch, lambda one: one.page):
                self._await([load.page for load in loads], kv_format)
                self._flying.update((load.page, kv_format) for load in loads)
                host.load(kv_format, loads)
        else:
            host.rewrite(kv_format, batch)

    def _follow(self, kv_format: str, batch: Sequence[Copy | Move | Zero]) -> None:
        """What is not sound and is moved on before anybody was told is not sound there either."""
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
        """Whether a load is on its way to one of these, or to a slab of one in which pages were cut otherwise."""
        if not self._flying.keys().isdisjoint(pages):
            return True
        stride = self._pages.stride
        cut_otherwise = {page // stride for page, other in self._flying.items() if other != kv_format}
        return bool(cut_otherwise) and any(page // stride in cut_otherwise for page in pages)

    def _collect(self, wait_seconds: float | None = 0.0) -> None:
        """Whatever has arrived; None waits until something has."""
        if self._host is None:
            return
        while self._flying:
            try:
                arrived = self._host.loaded.get(wait_seconds != 0.0, wait_seconds)
            except Empty:
                return
            for one in arrived:
                self._flying.pop(one.page, None)
                if not one.is_sound:
                    self._spoilt.add((one.kv_format, one.page))
                    self._counts["damaged"] += 1
            self._landed += arrived
            wait_seconds = 0.0


def _without_repeats(batch: Sequence[Any], target: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Cut where a target comes a second time: what is in one part may be done at once."""
    part: dict[int, Any] = {}
    for operation in batch:
        if target(operation) in part:
            yield list(part.values())
            part = {}
        part[target(operation)] = operation
    if part:
        yield list(part.values())


def _place(operation: Operation) -> tuple[str, str]:
    """Who carries it out, and in which format."""
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
    """The pages of the device that these read or write."""
    for operation in batch:
        match operation:
            case Copy() | Move():
                yield from ends(operation)
            case Zero():
                yield from operation.pages
            case Demote() | Load():
                yield operation.page
