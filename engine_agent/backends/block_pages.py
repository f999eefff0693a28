"""The engine's event log for gateways: tiers merged into one, marks instead of digests, page by page.

A gateway that follows the log gets changes in order, as many as fit a page. After a gap or a restart, it first gets the
whole index of one moment, over several pages, and then all changes after that moment, so none is lost. Such a snapshot
is cached for a while for other gateways, as long as the log still has the changes after it.
"""

import asyncio
import itertools
import time
from array import array
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

from engine_agent.cache.events import Event, EventLog, Gap, IndexSnapshot, Replay, Stored
from engine_agent.cache.keys import DIGEST_BYTES, Digest, Digests
from engine_agent.contracts.block_events import MARK_BYTES, BlockChange, Load, Page, change_bytes

PAGE_BYTES = 64 << 10  # the size of a page, unless a single change is larger: parsed in a few milliseconds
FROZEN_SECONDS = 60.0  # how long a snapshot is cached after its last use
_IN_SNAPSHOT = 1 << 62  # numbers from here on are positions in a snapshot, not in the log
_SERIAL_BITS = 20
Changes = tuple[BlockChange, ...]
Found = Replay | IndexSnapshot | None  # None: the cached snapshot is still usable


@dataclass(frozen=True, slots=True)
class Question:
    """A query to the log. `kept`: boot and number of the cached snapshot, valid if the log has the changes after it."""

    boot: str
    since: int
    kept: tuple[str, int] | None = None


# Queries the log and the engine's load between two of its steps. With None, only the load.
Ask = Callable[[Question | None], Awaitable[tuple[Found, Load]]]


@dataclass(slots=True)
class _Frozen:
    """The index at one moment, in pages."""

    serial: int
    boot: str
    number: int  # in the log
    parts: list[Changes]
    used: float


class BlockPages:
    def __init__(
        self, ask: Ask, *, hidden: str, page_bytes: int = PAGE_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`hidden`: the engine's own namespace, whose blocks are not reported."""
        self._ask, self._hidden, self._page_bytes, self._clock = ask, hidden, page_bytes, clock
        self._serials = itertools.count(1)
        self._frozen: _Frozen | None = None

    async def page(self, boot: str, since: int) -> Page:
        frozen = self._kept()
        if frozen is not None and boot == frozen.boot and since >= _IN_SNAPSHOT:
            serial, part = divmod(since - _IN_SNAPSHOT, 1 << _SERIAL_BITS)
            if serial == frozen.serial and part < len(frozen.parts):
                _, load = await self._ask(None)
                return self._part(frozen, part, load)
        cached_position = (frozen.boot, frozen.number) if frozen else None
        changes, load = await self._ask(Question(boot, since, cached_position))
        if isinstance(changes, Replay):
            return self._replayed(changes, since, load)
        if isinstance(changes, IndexSnapshot) or frozen is None:
            assert changes is not None
            frozen = self._frozen = await asyncio.to_thread(self._freeze, changes)
        return self._part(frozen, 0, load)

    def _kept(self) -> _Frozen | None:
        if self._frozen is not None and self._clock() - self._frozen.used > FROZEN_SECONDS:
            self._frozen = None
        return self._frozen

    def _freeze(self, snapshot: IndexSnapshot) -> _Frozen:
        stored = (_stored(run) for run in snapshot.stored if run.namespace != self._hidden)
        parts = list(self._cut(stored)) or [()]
        return _Frozen(next(self._serials), snapshot.boot, snapshot.number, parts, self._clock())

    def _part(self, frozen: _Frozen, part: int, load: Load) -> Page:
        frozen.used = self._clock()
        is_last = part == len(frozen.parts) - 1
        following = _IN_SNAPSHOT + (frozen.serial << _SERIAL_BITS) + part + 1
        number = frozen.number if is_last else following
        return Page(frozen.boot, number, part == 0, is_last, load, frozen.parts[part])

    def _replayed(self, replay: Replay, since: int, load: Load) -> Page:
        """Return as many whole events as fit one page."""
        size, number = 0, since
        changes: list[BlockChange] = []
        for event in replay.events:
            change = _changed(event) if event.namespace != self._hidden else None
            size += change_bytes(change) if change else 0
            if change and changes and size > self._page_bytes:
                return Page(replay.boot, number, False, False, load, tuple(changes))
            changes += [change] if change else []
            number = event.number
        return Page(replay.boot, number, False, True, load, tuple(changes))

    def _cut(self, changes: Iterable[BlockChange]) -> Iterator[Changes]:
        part: list[BlockChange] = []
        size = 0
        for change in changes:
            size += change_bytes(change)
            if part and size > self._page_bytes:
                yield tuple(part)
                part, size = [], change_bytes(change)
            part.append(change)
        if part:
            yield tuple(part)


def answered(log: EventLog, question: Question) -> Found:
    """Return the changes after `since`, or None if the cached snapshot is usable, or else a new snapshot."""
    # A position in a snapshot is never a number of the log.
    replay_or_gap = log.since(question.since, boot=question.boot)
    if not isinstance(replay_or_gap, Gap):
        return replay_or_gap
    if question.kept is not None:
        boot, number = question.kept
        if isinstance(log.since(number, boot=boot), Replay):
            return None
    return log.snapshot()


def _changed(event: Event) -> BlockChange | None:
    """Return the change for gateways, or None if blocks only moved between tiers."""
    root, parent = _mark(event.root), _mark(event.parent)
    match event.kind:
        case "stored":
            return BlockChange("stored", event.namespace, root, parent, marks(event.digests))
        case "removed" if event.is_gone:
            return BlockChange("removed", event.namespace, root, parent, marks(event.digests))
        case "cleared":
            return BlockChange("cleared", event.namespace, root, root, b"")
    return None


def _stored(run: Stored) -> BlockChange:
    return BlockChange("stored", run.namespace, _mark(run.root), _mark(run.parent), marks(run.digests))


def marks(digests: Digests) -> bytes:
    return array("Q", digests.packed)[:: DIGEST_BYTES // MARK_BYTES].tobytes()  # the first of each four words


def _mark(digest: Digest) -> bytes:
    return digest[:MARK_BYTES]
