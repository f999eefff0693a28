"""The index of blocks: a radix tree of runs for each chain root. Only structure; other modules decide what it means.

A run is a stretch of consecutive blocks of one chain with the same lifetime: used by the same sequences, released
together, copied to the same tiers. Nearly all work is per run, not per block, and per-block data are slices of lists. A
digest commits to all blocks before it, so one comparison shows whether two chains agree up to a block, and bisection
finds where they part; there is no table of all blocks.

A run can lose its pages and keep its position: after it left the index it stays as a hollow run, which cannot be
matched, as long as `reasons.py` remembers why it left or runs with pages are below it. When its blocks are recomputed,
it gets pages again.
"""

import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from engine_agent.cache.keys import Digest, Digests, common_blocks

GoneReason = Literal["expired", "evicted", "quota", "disabled"]


class TierCopy:
    """The pages of one run in one tier, and its position in a list of that tier."""

    __slots__ = ("is_listed", "newer", "older", "pages", "run")

    def __init__(self, run: "Run", pages: Iterable[int]) -> None:
        self.run = run
        self.pages = array("q", pages)  # in one array, for the reason given at `Digests`
        self.older: TierCopy = self
        self.newer: TierCopy = self
        self.is_listed = False

    @property
    def is_movable(self) -> bool:
        """Return whether no sequence uses the run. Pages of a run in use are in block tables, so they cannot move."""
        return not self.run.holders


class Run:
    """Consecutive blocks of one chain. Only creation times differ between blocks, and they never fall with depth."""

    __slots__ = (
        "age_entry",
        "cap_entry",
        "cap_seconds",
        "children",
        "copies",
        "created",
        "digests",
        "ghost",
        "hits",
        "holders",
        "parent",
        "pins",
        "released",
        "stamp",
        "start",
        "strangers",
        "tree",
    )

    def __init__(self, tree: "Tree", parent: "Run | None", start: int, digests: Digests) -> None:
        self.tree = tree
        self.parent = parent
        self.children: dict[Digest, Run] = {}
        self.start = start
        self.digests = digests
        self.created: list[float] = []
        self.copies: list[TierCopy | None] = [None] * tree.tiers
        self.cap_seconds = 0.0
        self.released = 0.0
        self.stamp = 0  # of its last release: equal for runs released together
        self.hits = 0
        self.holders = 0  # sequences whose chain leads through it
        self.strangers = 0  # the holders whose table has other pages, from before the run expired and was recomputed
        self.pins = 0
        self.age_entry = self.cap_entry = math.inf  # its times in the queues of `expiry.ByTime`
        self.ghost: Ghost | None = None  # why it is hollow, as long as that is remembered

    @property
    def end(self) -> int:
        return self.start + len(self.digests)

    @property
    def is_hollow(self) -> bool:
        return not any(self.copies)

    def from_root(self) -> "list[Run]":
        """Return the runs from the root to this one, inclusive."""
        path, run = [], self
        while run.parent:
            path.append(run)
            run = run.parent
        return path[::-1]

    def below(self) -> Iterator["Run"]:
        """Iterate over all runs under this one, parents first."""
        waiting = list(self.children.values())
        while waiting:
            run = waiting.pop()
            yield run
            waiting.extend(run.children.values())


class Ghost:
    """One departure: why the blocks left, and the hollow runs in their place. Compared by identity."""

    __slots__ = ("at", "by", "live", "reason", "runs")

    def __init__(self, reason: GoneReason, by: str | None, at: float) -> None:
        self.reason = reason
        self.by = by  # the namespace whose request evicted the blocks
        self.at = at
        self.runs: list[Run] = []
        self.live = 0  # of those runs, how many have not been recomputed since


@dataclass(frozen=True, slots=True)
class Kinship:
    """Attributes that chains of the same prompts in different KV formats have in common."""

    model_revision: str
    salt: bytes = field(repr=False)  # the client's


@dataclass(slots=True)
class Chain:
    """A prompt's blocks in a namespace: their root and their digests, which may grow."""

    root: Digest = field(repr=False)
    kin: Kinship
    kv_format: str
    digests: Digests = field(repr=False)


class Tree:
    """All chains that begin at one root."""

    __slots__ = ("is_retired", "kin", "kv_format", "namespace", "pinned_blocks", "pins", "root", "tiers", "top")

    def __init__(self, namespace: str, root: Digest, kv_format: str, kin: Kinship, tiers: int) -> None:
        self.namespace = namespace
        self.root = root
        self.kv_format = kv_format
        self.kin = kin
        self.tiers = tiers
        self.top = Run(self, None, 0, Digests())
        self.pins = 0
        self.pinned_blocks = 0  # the depth of its deepest pin
        self.is_retired = False

    def walk(self, digests: Digests, stop: int, is_alive: Callable[[Run], bool]) -> tuple[list[Run], int]:
        """Return the runs of the longest living prefix of `digests[:stop]`, the last maybe in part, and its length."""
        path: list[Run] = []
        depth, run = 0, self.top
        while depth < stop:
            child = run.children.get(digests[depth])
            if child is None or not is_alive(child):
                break
            shared = common_blocks(digests, depth, child.digests, stop)
            path.append(child)
            depth += shared
            if shared < len(child.digests):
                break
            run = child
        return path, depth

    def runs(self) -> Iterator[Run]:
        """Iterate over all runs, parents first."""
        return self.top.below()

    def run_with(self, page: int, tier: int) -> Run | None:
        """Return the run that has this page. Looks at every run."""
        return next((run for run in self.runs() if (copy := run.copies[tier]) and page in copy.pages), None)


def add_run(parent: Run, digests: Digests) -> Run:
    run = Run(parent.tree, parent, parent.end, digests)
    parent.children[digests[0]] = run
    return run


def split_run(run: Run, blocks: int) -> Run:
    """Cut the first `blocks` off into a new run above it and return that. Sequences that lease `run` lease both parts.

    The pages of the new run's copies belong to it now; the caller must insert those copies into lists.
    """
    assert 0 < blocks < len(run.digests)
    parent = run.parent
    assert parent is not None
    upper = Run(run.tree, parent, run.start, run.digests[:blocks])
    run.digests = run.digests[blocks:]
    run.start += blocks
    parent.children[upper.digests[0]] = upper
    upper.children[run.digests[0]] = run
    run.parent = upper
    upper.created, run.created = run.created[:blocks], run.created[blocks:]
    for name in ("cap_seconds", "released", "stamp", "hits", "holders", "strangers", "pins"):
        setattr(upper, name, getattr(run, name))
    for tier, copy in enumerate(run.copies):
        if copy:
            upper.copies[tier] = TierCopy(upper, copy.pages[:blocks])
            del copy.pages[:blocks]
    return upper


def prune(run: Run) -> None:
    """Remove an unused hollow run from its tree, and the hollow runs above it that led only to it."""
    while run.parent and not run.children and not run.holders and not run.ghost and run.is_hollow:
        parent, first = run.parent, run.digests[0]
        if parent.children.get(first) is not run:  # it was removed with a run below it
            return
        del parent.children[first]
        run = parent
