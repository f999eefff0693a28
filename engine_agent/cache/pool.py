"""The arena: pages of several KV formats in one byte range, without a fixed partition.

The range is cut into equal slabs. A slab contains pages of one format at a time and changes format only when it is
empty, so any mix of formats shares the pool. A page id is `slab * stride + slot`; `offset` returns where it lies.

Free pages of a format are in three places, used in this order:

- *returned*: freed recently, in any order, at most RETURNED_MOST of them. A full pool that evicts and allocates uses
  only these: one slice of a list each way, wherever in the pool the pages lie;
- *holes* in partly used slabs, by their number (classes 1, 2–3, 4–7, …): the fullest slabs first, so that the emptiest
  can drain;
- empty slabs, which belong to no format.

When a format lacks room, the other formats' returned pages are sorted into their slabs, which may empty some. Then
slabs of other formats are emptied by moving their pages into holes elsewhere (`Move`). Only pages of a movable owner
move.

**The bound.** A slab of format G can be emptied exactly when G has a slab's worth of free pages and one of its slabs
contains movable pages only. So, after a refused allocation, the free bytes it could not use are at most

    one slab for every other format in use + the slabs that contain an immovable page

plus the slabs' tails; `fragmentation` returns the figures. A refusal looks at 2 × LOOKS slabs of each format (and as
many more as it wants emptied): half of them the emptiest, half by a sweep that the next refusal continues. In a pool of
more than LOOKS slabs, "contains an immovable page" means "contained one when last looked at".

Memory grows with what was ever in use, not with the pool: a slab's lists are created when it is first claimed. Only
`check` scans.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from operator import is_

from engine_agent.cache.errors import InvalidValue, UnknownFormat
from engine_agent.cache.operations import Move, Tier
from engine_agent.cache.storage import PageOwner

PAGES_PER_SLAB = 64  # of the largest page: few enough that slabs drain, many enough that a prompt touches few of them
SLABS_PER_FORMAT = 16  # at least, where the pool allows it: each format may leave one slab half used
RETURNED_MOST = 1024  # pages of a format, fewer in a small pool; sorting them takes 0.5 ms if each lies in another slab
LOOKS = 64


@dataclass(frozen=True, slots=True)
class FormatUse:
    """One format's part of a pool. `unusable_bytes` are free, but in slabs that contain pages of other formats."""

    slabs: int
    used_pages: int
    free_pages: int
    used_bytes: int
    free_bytes: int
    unusable_bytes: int
    tail_bytes: int


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """A pool's bytes: used + free + tail. `unusable_bytes` is the largest value of any format in use."""

    pool_bytes: int
    used_bytes: int
    free_bytes: int
    unusable_bytes: int
    tail_bytes: int
    by_format: Mapping[str, FormatUse]

    @property
    def waste_ratio(self) -> float:
        return (self.unusable_bytes + self.tail_bytes) / self.pool_bytes


def choose_slab_bytes(capacity_bytes: int, page_bytes: Iterable[int]) -> int:
    """Return the slab size that wastes least among those near 64 of the largest page (fewer in a small pool).

    Every candidate is a multiple of some page, so pages are aligned to the common divisor of all page sizes. A small
    pool of one format may have still smaller slabs: no other format needs them, and each page counts.
    """
    sizes = set(page_bytes)
    largest = max(sizes)
    slabs = SLABS_PER_FORMAT * len(sizes)
    target = largest * max(1, min(PAGES_PER_SLAB, capacity_bytes // (largest * slabs)))
    is_small = len(sizes) == 1 and capacity_bytes < largest * PAGES_PER_SLAB**2
    low, high = largest if is_small else max(largest, target // 2), min(capacity_bytes, target * 3 // 2)
    # The waste is least exactly at a multiple of some page; for much smaller pages it is negligible anyway.
    steps = [size for size in sizes if size * PAGES_PER_SLAB >= largest]
    choices = {size * count for size in steps for count in range(-(-low // size), high // size + 1)}

    def merit(slab_bytes: int) -> tuple[int, int, int]:
        usable = [capacity_bytes // slab_bytes * (slab_bytes // size) * size for size in sizes]
        return min(usable), sum(usable), -abs(slab_bytes - target)

    return max(choices, key=merit)


@dataclass(slots=True, eq=False)
class _Shelf:
    """One format's slabs."""

    kv_format: str
    page_bytes: int
    slots: int
    returned_most: int
    slabs: int = 0
    free: int = 0  # pages: the returned ones and the holes
    returned: list[int] = field(default_factory=list)
    holes: list[dict[int, None]] = field(default_factory=list)  # slabs by the bit length of their number of holes

    def __post_init__(self) -> None:
        self.holes.extend({} for _ in range(self.slots.bit_length() + 1))

    def pop_fullest(self) -> int | None:
        """Remove and return a slab of the fullest class with holes."""
        for slabs in self.holes:
            if slabs:
                return slabs.popitem()[0]
        return None


class Arena:
    """A `Storage` over one byte range. `take`, `give_back` and `assign` cost the same in a pool of any size."""

    def __init__(
        self, capacity_bytes: int, page_bytes: Mapping[str, int], slab_bytes: int | None = None, tier: Tier = "device"
    ) -> None:
        _check_sizes(capacity_bytes, page_bytes, slab_bytes)
        self.slab_bytes = choose_slab_bytes(capacity_bytes, page_bytes.values()) if slab_bytes is None else slab_bytes
        self.slabs = capacity_bytes // self.slab_bytes
        self.stride = self.slab_bytes // min(page_bytes.values())
        self._tier = tier
        self._rest_bytes = capacity_bytes - self.slabs * self.slab_bytes
        self._shelves = {name: self._new_shelf(name, size) for name, size in page_bytes.items()}
        # Of the slabs that were ever claimed, which are always the lowest ids:
        self._shelf_of: list[_Shelf | None] = []
        self._free: list[list[int]] = []  # a slab's holes
        self._owners: list[PageOwner | None] = []  # by page id; None for a free page
        self._drained: list[int] = []  # claimed before, empty now
        self._sweep = 0
        self._moves: list[Move] = []

    @property
    def capacity_bytes(self) -> int:
        return self.slabs * self.slab_bytes

    @property
    def free_bytes(self) -> int:
        return self.empty_slabs * self.slab_bytes + sum(s.free * s.page_bytes for s in self._shelves.values())

    @property
    def used_bytes(self) -> int:
        return sum((shelf.slabs * shelf.slots - shelf.free) * shelf.page_bytes for shelf in self._shelves.values())

    @property
    def empty_slabs(self) -> int:
        return self.slabs - len(self._shelf_of) + len(self._drained)

    def page_bytes(self, kv_format: str) -> int:
        return self._shelf(kv_format).page_bytes

    def most_pages(self, kv_format: str) -> int:
        return self.slabs * self._shelf(kv_format).slots

    def slab_format(self, slab: int) -> str | None:
        """Return the slab's format, or None while it is empty."""
        shelf = self._shelf_of[slab] if slab < len(self._shelf_of) else None
        return shelf.kv_format if shelf else None

    def offset(self, page: int, kv_format: str | None = None) -> int:
        """Return the page's byte offset, by default for its slab's format. A freed page may have had another."""
        slab, slot = divmod(page, self.stride)
        shelf = self._shelf(kv_format) if kv_format is not None else self._shelf_of[slab]
        assert shelf is not None, f"page {page} lies in an empty slab"
        assert slot < shelf.slots, f"page {page} is none of {shelf.kv_format}"
        return slab * self.slab_bytes + slot * shelf.page_bytes

    def take_moves(self) -> list[Move]:
        """Return the moves since the last call, in order. Call this before recording an operation of your own."""
        moves, self._moves = self._moves, []
        return moves

    def missing(self, kv_format: str, pages: int) -> int:
        """See `Storage.missing`. Sorting, draining and moving happen here, and only when there is no other room."""
        shelf = self._shelf(kv_format)
        missing_pages = pages - shelf.free - self.empty_slabs * shelf.slots
        if missing_pages > 0:
            missing_pages -= self._make_room(shelf, -(-missing_pages // shelf.slots)) * shelf.slots
        return max(0, missing_pages)

    def take(self, kv_format: str, pages: int) -> list[int]:
        shelf = self._shelf(kv_format)
        returned = shelf.returned
        if 0 < pages <= len(returned):
            taken_pages = returned[-pages:]
            del returned[-pages:]
        else:
            missing_pages = self.missing(kv_format, pages)
            assert not missing_pages, f"{missing_pages} of {pages} pages of {kv_format} are missing"
            taken_pages = returned[:pages]
            del returned[:pages]
            taken_pages += self._pull(shelf, pages - len(taken_pages))
        shelf.free -= pages
        return taken_pages

    def give_back(self, kv_format: str, pages: Sequence[int]) -> None:
        shelf = self._shelf(kv_format)
        owners = self._owners
        for page in pages:
            owners[page] = None
        shelf.returned += pages
        shelf.free += len(pages)
        if len(shelf.returned) > shelf.returned_most:
            self._sort_returned(shelf)

    def assign(self, pages: Sequence[int], owner: PageOwner | None) -> None:
        owners = self._owners
        for page in pages:
            owners[page] = owner

    def fragmentation(self) -> Fragmentation:
        free_bytes = sum(shelf.free * shelf.page_bytes for shelf in self._shelves.values())
        by_format = {name: self._use(shelf, free_bytes) for name, shelf in self._shelves.items()}
        return Fragmentation(
            pool_bytes=self.capacity_bytes + self._rest_bytes,
            used_bytes=self.used_bytes,
            free_bytes=self.free_bytes,
            unusable_bytes=max((use.unusable_bytes for use in by_format.values() if use.slabs), default=0),
            tail_bytes=self._rest_bytes + sum(use.tail_bytes for use in by_format.values()),
            by_format=by_format,
        )

    def check(self) -> list[str]:
        """Return all inconsistencies. Looks at every page that was ever in use once or twice, in C."""
        slabs: dict[_Shelf | None, list[int]] = {None: [], **{shelf: [] for shelf in self._shelves.values()}}
        for slab, shelf in enumerate(self._shelf_of):
            slabs[shelf].append(slab)
        problems = [*self._check_slabs(slabs.pop(None)), *self._check_owners()]
        for shelf, shelf_slabs in slabs.items():
            assert shelf is not None
            shelf_problems = chain(self._check_shelf(shelf, shelf_slabs), self._check_free(shelf, shelf_slabs))
            problems += [f"{shelf.kv_format}: {problem}" for problem in shelf_problems]
        return problems

    def _new_shelf(self, kv_format: str, page_bytes: int) -> _Shelf:
        slots = self.slab_bytes // page_bytes
        return _Shelf(kv_format, page_bytes, slots, returned_most=min(RETURNED_MOST, self.slabs * slots // 16))

    def _shelf(self, kv_format: str) -> _Shelf:
        try:
            return self._shelves[kv_format]
        except (KeyError, TypeError):
            raise UnknownFormat(kv_format, known=tuple(self._shelves)) from None

    def _use(self, shelf: _Shelf, free_bytes: int) -> FormatUse:
        used = shelf.slabs * shelf.slots - shelf.free
        return FormatUse(
            slabs=shelf.slabs,
            used_pages=used,
            free_pages=shelf.free,
            used_bytes=used * shelf.page_bytes,
            free_bytes=shelf.free * shelf.page_bytes,
            unusable_bytes=free_bytes - shelf.free * shelf.page_bytes,
            tail_bytes=shelf.slabs * (self.slab_bytes - shelf.slots * shelf.page_bytes),
        )

    # Between slabs and formats

    def _pull(self, shelf: _Shelf, pages: int) -> list[int]:
        """Take pages out of holes, then out of empty slabs. The caller subtracts them from `shelf.free`."""
        taken_pages: list[int] = []
        while (missing_pages := pages - len(taken_pages)) > 0:
            slab = shelf.pop_fullest()
            if slab is None:
                slab = self._claim(shelf)
            free = self._free[slab]
            taken_pages += free[:missing_pages]
            del free[:missing_pages]
            if free:
                shelf.holes[len(free).bit_length()][slab] = None
        return taken_pages

    def _claim(self, shelf: _Shelf) -> int:
        if self._drained:
            slab = self._drained.pop()
        else:
            slab = len(self._shelf_of)
            assert slab < self.slabs, "no slab is empty"
            self._shelf_of.append(None)
            self._free.append([])
            self._owners += [None] * self.stride
        self._shelf_of[slab] = shelf
        self._free[slab] = list(self._slots(shelf, slab))
        shelf.slabs += 1
        shelf.free += shelf.slots
        return slab

    def _slots(self, shelf: _Shelf, slab: int) -> range:
        return range(slab * self.stride, slab * self.stride + shelf.slots)

    def _vacate(self, shelf: _Shelf, slab: int) -> None:
        """Release a slab whose pages are all free and counted from its format."""
        shelf.free -= shelf.slots
        shelf.slabs -= 1
        self._shelf_of[slab] = None
        self._free[slab] = []
        self._drained.append(slab)

    def _sort_returned(self, shelf: _Shelf) -> None:
        """Put returned pages among the holes of their slabs. Slabs that are empty then belong to no format."""
        pages = sorted(shelf.returned)
        shelf.returned.clear()
        start = 0
        while start < len(pages):
            slab = pages[start] // self.stride
            end = bisect_left(pages, (slab + 1) * self.stride, start)
            free = self._free[slab]
            if free:
                del shelf.holes[len(free).bit_length()][slab]
            free += pages[start:end]
            if len(free) == shelf.slots:
                self._vacate(shelf, slab)
            else:
                shelf.holes[len(free).bit_length()][slab] = None
            start = end

    # Compaction

    def _make_room(self, shelf: _Shelf, slabs: int) -> int:
        """Empty up to `slabs` slabs of other formats, those with the most free bytes first, and return how many."""
        empty_before = self.empty_slabs
        donors = [donor for donor in self._shelves.values() if donor is not shelf and donor.free >= donor.slots]
        for donor in sorted(donors, key=lambda candidate: candidate.free * candidate.page_bytes, reverse=True):
            missing_slabs = empty_before + slabs - self.empty_slabs
            if missing_slabs > 0:
                self._empty_some(donor, missing_slabs)
        return self.empty_slabs - empty_before

    def _empty_some(self, shelf: _Shelf, slabs: int) -> None:
        enough = self.empty_slabs + slabs
        self._sort_returned(shelf)
        for slab in self._candidates(shelf, LOOKS + slabs):
            if self.empty_slabs >= enough or shelf.free < shelf.slots:
                return
            if self._shelf_of[slab] is shelf and self._is_movable(shelf, slab):
                self._drain(shelf, slab)

    def _candidates(self, shelf: _Shelf, looks: int) -> Iterable[int]:
        """Return the emptiest slabs, then the next ones of the sweep over all."""
        emptiest = list(islice(chain.from_iterable(reversed(shelf.holes)), looks))  # by class: sorted finer below
        emptiest.sort(key=lambda slab: len(self._free[slab]), reverse=True)
        claimed = len(self._shelf_of)
        swept = [(self._sweep + step) % claimed for step in range(min(looks, claimed))]
        self._sweep = (self._sweep + looks) % claimed
        return dict.fromkeys(emptiest + swept)

    def _is_movable(self, shelf: _Shelf, slab: int) -> bool:
        """Return whether each page of the slab is free or has a movable owner."""
        slots = self._slots(shelf, slab)
        unowned = 0
        previous: PageOwner | None = None
        for owner in self._owners[slots.start : slots.stop]:
            if owner is None:
                unowned += 1
            elif owner is not previous:
                if not owner.is_movable:
                    return False
                previous = owner
        return unowned == len(self._free[slab])

    def _drain(self, shelf: _Shelf, slab: int) -> None:
        """Move the slab's pages into holes of other slabs. A slab's worth of pages is free, so the holes suffice."""
        free = self._free[slab]
        if free:
            del shelf.holes[len(free).bit_length()][slab]
        owners = self._owners
        sources = [page for page in self._slots(shelf, slab) if owners[page] is not None]
        moved = dict(zip(sources, self._pull(shelf, len(sources)), strict=True))
        for owner in {id(owners[page]): owners[page] for page in sources}.values():
            assert owner is not None
            for index, page in enumerate(owner.pages):
                if page in moved:
                    owner.pages[index] = moved[page]
        for source, target in moved.items():
            owners[target], owners[source] = owners[source], None
            self._moves.append(Move(shelf.kv_format, source, target, self._tier))
        self._vacate(shelf, slab)

    # Integrity

    def _check_slabs(self, slabs: Sequence[int]) -> Iterable[str]:
        """Check the empty slabs."""
        if sorted(self._drained) != slabs:
            yield f"slabs {_some(slabs)} are empty, {_some(self._drained)} are known to be"
        for slab in slabs:
            owners = self._owners[slab * self.stride : (slab + 1) * self.stride]
            if self._free[slab] or any(owner is not None for owner in owners):
                yield f"slab {slab} is empty, yet has holes or pages with an owner"

    def _check_shelf(self, shelf: _Shelf, slabs: Sequence[int]) -> Iterable[str]:
        if len(slabs) != shelf.slabs:
            yield f"{shelf.slabs} slabs counted, {len(slabs)} found"
        with_holes = [slab for slab in slabs if self._free[slab]]
        if sum(map(len, shelf.holes)) != len(with_holes):
            yield f"{sum(map(len, shelf.holes))} slabs with holes known, {len(with_holes)} found"
        for slab in with_holes:
            free, slots = self._free[slab], self._slots(shelf, slab)
            if slab not in shelf.holes[min(len(free), shelf.slots).bit_length()]:
                yield f"slab {slab} has {len(free)} holes and is not known for it"
            if min(free) < slots.start or max(free) >= slots.stop:
                yield f"slab {slab} has holes that lie elsewhere"
        shelf_slabs = set(slabs)
        for page in shelf.returned:
            slab, slot = divmod(page, self.stride)
            if slab not in shelf_slabs or slot >= shelf.slots:
                yield f"page {page} was given back and lies elsewhere"

    def _check_free(self, shelf: _Shelf, slabs: Sequence[int]) -> Iterable[str]:
        pages = [*chain.from_iterable(self._free[slab] for slab in slabs), *shelf.returned]
        if len(pages) != shelf.free:
            yield f"{shelf.free} free pages counted, {len(pages)} found"
        if len(distinct := set(pages)) != len(pages):
            yield f"{len(pages) - len(distinct)} pages are free twice"
        if owned := [page for page in pages if 0 <= page < len(self._owners) and self._owners[page] is not None]:
            yield f"free pages {_some(owned)} have an owner"

    def _check_owners(self) -> Iterable[str]:
        """Check that each assigned page is in its owner's list exactly once."""
        owned = len(self._owners) - sum(map(is_, self._owners, repeat(None)))
        listed_pages = 0
        for owner in self._distinct_owners():
            pages = set(owner.pages)
            if len(pages) != len(owner.pages):
                yield f"an owner lists {len(owner.pages) - len(pages)} pages twice"
            if pages and not (min(pages) >= 0 and max(pages) < len(self._owners)):
                yield f"an owner lists pages {_some(pages)}, some of which never were"
                return
            listed_pages += sum(map(is_, map(self._owners.__getitem__, pages), repeat(owner)))
        if listed_pages != owned:
            yield f"{owned} pages have an owner, {listed_pages} of them are in its list"

    def _distinct_owners(self) -> Iterable[PageOwner]:
        distinct = {}
        previous = None
        for owner in self._owners:
            if owner is not previous:
                previous = owner
                if owner is not None:
                    distinct[id(owner)] = owner
        return distinct.values()


def _check_sizes(capacity_bytes: int, page_bytes: object, slab_bytes: int | None) -> None:
    _check_size("capacity_bytes", capacity_bytes)
    if slab_bytes is not None:
        _check_size("slab_bytes", slab_bytes)
        if slab_bytes > capacity_bytes:
            raise InvalidValue("slab_bytes", slab_bytes, f"at most the pool's {capacity_bytes} bytes")
    if not isinstance(page_bytes, Mapping) or not page_bytes:
        raise InvalidValue("page_bytes", page_bytes, "at least one format with its size")
    room, container = (capacity_bytes, "pool") if slab_bytes is None else (slab_bytes, "slab")
    for kv_format, size in page_bytes.items():
        if not isinstance(kv_format, str) or not kv_format:
            raise InvalidValue("page_bytes", kv_format, "formats with a name")
        _check_size(f"page_bytes.{kv_format}", size)
        if size > room:
            raise InvalidValue(f"page_bytes.{kv_format}", size, f"at most the {container}'s {room} bytes")


def _check_size(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidValue(field, value, "a whole number of bytes, at least 1")


def _some(pages: Iterable[int]) -> str:
    return ", ".join(map(str, islice(sorted(pages), 5)))
