"""Changes of the index, in order, for a gateway that wants to know which agent has which prefix cached.

Every event has a number, and the log has a boot id, so a consumer knows what it missed. It asks for the events after
its last number. When those are no longer available, or the boot id differs, it takes a snapshot and continues from
there. Such a consumer has an exact copy of the index: under each root, which digests are in which tier. Events carry
digests, never tokens.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from engine_agent.cache.index import Run, Tree
from engine_agent.cache.keys import Digest, Digests

Kind = Literal["stored", "removed", "demoted", "loaded", "cleared"]


@dataclass(frozen=True, slots=True)
class Event:
    """A change of some blocks.

    `stored`, `loaded`: now in `tier`. `removed`: no longer in `tier`; `is_gone` when no other tier has the blocks
    either. `demoted`: from the tier above into `tier`. `cleared`: nothing is left under `root` in any tier. `parent`:
    the digest before the first, or the root.
    """

    number: int
    kind: Kind
    namespace: str
    kv_format: str
    root: Digest
    tier: str
    parent: Digest
    digests: Digests
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Replay:
    """All events after the requested number."""

    boot: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """The requested events are no longer available: take a snapshot."""

    boot: str
    oldest: int  # the first number still available


@dataclass(frozen=True, slots=True)
class Stored:
    """One run of the index in a snapshot."""

    namespace: str
    kv_format: str
    root: Digest
    tiers: tuple[str, ...]
    parent: Digest
    digests: Digests


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """The index after event `number`."""

    boot: str
    number: int
    stored: tuple[Stored, ...]


class EventLog:
    """The latest events, up to `most_digests` digests in total."""

    def __init__(
        self, *, boot: str, most_digests: int, tiers: Sequence[str], trees: Callable[[], Iterable[Tree]]
    ) -> None:
        self.boot = boot
        self.number = 0
        self._most_digests = most_digests
        self._digests = 0
        self._kept: deque[Event] = deque()
        self._tiers = tuple(tiers)
        self._trees = trees

    def publish(self, kind: Kind, run: Run, digests: Digests, *, tier: int, is_gone: bool = False) -> None:
        """Record an event about the last `len(digests)` blocks of `run`, or about its whole tree."""
        first_new = run.end - len(digests) - run.start
        self.number += 1
        tree = run.tree
        parent = run.digests[first_new - 1] if first_new > 0 else parent_digest(run)
        tier_name = self._tiers[tier]
        self._keep(
            Event(self.number, kind, tree.namespace, tree.kv_format, tree.root, tier_name, parent, digests, is_gone)
        )

    def since(self, number: int, *, boot: str) -> Replay | Gap:
        oldest = self._kept[0].number if self._kept else self.number + 1
        if boot != self.boot or not oldest - 1 <= number <= self.number:
            return Gap(self.boot, oldest)
        newest = list(islice(reversed(self._kept), self.number - number))  # a consumer that keeps up lacks only a few
        return Replay(self.boot, tuple(reversed(newest)))

    def snapshot(self) -> IndexSnapshot:
        stored = tuple(self._stored(run) for tree in self._trees() for run in tree.runs() if not run.is_hollow)
        return IndexSnapshot(self.boot, self.number, stored)

    def _stored(self, run: Run) -> Stored:
        tree = run.tree
        tiers = tuple(name for name, copy in zip(self._tiers, run.copies, strict=True) if copy)
        return Stored(tree.namespace, tree.kv_format, tree.root, tiers, parent_digest(run), run.digests)

    def _keep(self, event: Event) -> None:
        self._kept.append(event)
        self._digests += len(event.digests) + 1
        while self._digests > self._most_digests and len(self._kept) > 1:
            self._digests -= len(self._kept.popleft().digests) + 1


def parent_digest(run: Run) -> Digest:
    return run.parent.digests[-1] if run.parent and run.parent.digests else run.tree.root
