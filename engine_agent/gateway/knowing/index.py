"""An index of the blocks that each engine has cached, by mark: some ten bytes each, accessed within a microsecond.

Marks are prefixes of keyed digests, so they are spread evenly: a mark's first bytes select one of many small buckets.
Each root has a separate table, because a root can be cleared as a whole.
"""

from collections.abc import Iterator, Mapping

from engine_agent.contracts.block_events import MARK_BYTES, BlockChange, Page

MOST_IN_BUCKET = 48  # marks, on average: with more, searching a bucket would take longer than finding it
MOST_BLOCKS = 4_000_000  # limit for all engines together: further blocks are ignored
STEP = 250  # marks that are processed before other tasks may run


class Marks:
    """A set of marks that grows by one bucket at a time, so that no caller waits for a rehash (linear hashing)."""

    __slots__ = ("_base", "_buckets", "_count", "_next")

    def __init__(self) -> None:
        self._buckets = [bytearray()]
        self._base, self._next = 1, 0  # of `_base` buckets, those before `_next` have been split
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, mark: bytes) -> bool:
        return _place(self._bucket(mark), mark) >= 0

    def add(self, mark: bytes) -> bool:
        """Add a mark, and return whether it is new."""
        bucket = self._bucket(mark)
        if _place(bucket, mark) >= 0:
            return False
        bucket += mark
        self._count += 1
        if self._count > MOST_IN_BUCKET * len(self._buckets):
            self._part()
        return True

    def discard(self, mark: bytes) -> bool:
        """Remove a mark, and return whether it was there."""
        bucket = self._bucket(mark)
        offset = _place(bucket, mark)
        if offset < 0:
            return False
        last_mark = bucket[-MARK_BYTES:]
        del bucket[-MARK_BYTES:]
        if offset < len(bucket):
            bucket[offset : offset + MARK_BYTES] = last_mark
        self._count -= 1
        return True

    def _bucket(self, mark: bytes) -> bytearray:
        mark_number = int.from_bytes(mark[:4], "little")
        bucket_number = mark_number & (self._base - 1)
        return self._buckets[bucket_number if bucket_number >= self._next else mark_number & (2 * self._base - 1)]

    def _part(self) -> None:
        """Split the next bucket: marks with the next bit set move to a new bucket."""
        bucket = self._buckets[self._next]
        self._buckets.append(bytearray())
        self._buckets[self._next] = bytearray()
        self._next += 1
        if self._next == self._base:
            self._base, self._next = 2 * self._base, 0
        for mark in _parted(bytes(bucket)):
            target_bucket = self._bucket(mark)
            target_bucket += mark


class Index:
    """The cached blocks of all engines that report them. `changing` yields between steps, for other tasks to run."""

    def __init__(self, most_blocks: int = MOST_BLOCKS) -> None:
        self._roots: dict[str, dict[bytes, Marks]] = {}  # by agent
        self._counts: dict[str, int] = {}
        self._most = most_blocks

    @property
    def blocks(self) -> Mapping[str, int]:
        return self._counts

    def apply(self, agent: str, page: Page) -> None:
        for _ in self.changing(agent, page):
            pass

    def changing(self, agent: str, page: Page) -> Iterator[None]:
        """Apply a page in steps. A caller that stops early must forget the agent: half a page is invalid."""
        if page.is_snapshot:
            self.forget(agent)
        for change in page.changes:
            yield from self._change(agent, change)

    def match(self, agent: str, root: bytes, marks: bytes) -> int:
        """Return how many blocks match, from the first on. A mark commits to all before it, so bisect for the last."""
        cached_marks = self._roots.get(agent, {}).get(root)
        low, high = 0, len(marks) // MARK_BYTES if cached_marks else 0
        probe = min(1, high)
        while low < high and cached_marks:
            if marks[(probe - 1) * MARK_BYTES : probe * MARK_BYTES] in cached_marks:
                low = probe
            else:
                high = probe - 1
            probe = (low + high + 1) // 2
        return low

    def forget(self, agent: str) -> None:
        self._roots.pop(agent, None)
        self._counts.pop(agent, None)

    def _change(self, agent: str, change: BlockChange) -> Iterator[None]:
        roots = self._roots.setdefault(agent, {})
        self._counts.setdefault(agent, 0)
        if change.kind == "cleared":
            self._counts[agent] -= len(roots.pop(change.root, ()))
        elif change.kind == "stored":
            yield from self._add(agent, roots.setdefault(change.root, Marks()), change.marks)
        elif cached_marks := roots.get(change.root):
            yield from self._remove(agent, cached_marks, change.marks)
            if not cached_marks:
                roots.pop(change.root, None)

    def _add(self, agent: str, cached_marks: Marks, marks: bytes) -> Iterator[None]:
        free_blocks = self._most - sum(self._counts.values())
        for begin in range(0, len(marks), STEP * MARK_BYTES):
            part = _parted(marks[begin : begin + STEP * MARK_BYTES])
            added = sum([cached_marks.add(mark) for mark in part[: max(0, free_blocks)]])
            free_blocks -= added
            self._counts[agent] += added
            yield

    def _remove(self, agent: str, cached_marks: Marks, marks: bytes) -> Iterator[None]:
        for begin in range(0, len(marks), STEP * MARK_BYTES):
            part = _parted(marks[begin : begin + STEP * MARK_BYTES])
            self._counts[agent] -= sum([cached_marks.discard(mark) for mark in part])
            yield


def _parted(marks: bytes) -> list[bytes]:
    return [marks[offset : offset + MARK_BYTES] for offset in range(0, len(marks), MARK_BYTES)]


def _place(bucket: bytearray, mark: bytes) -> int:
    """Return the mark's position, or -1. Ignore equal bytes that span two marks."""
    offset = bucket.find(mark)
    while offset >= 0 and offset % MARK_BYTES:
        offset = bucket.find(mark, offset + 1)
    return offset
