"""Which blocks there are: for each chain root a radix tree of runs. Structure only; what it means is decided elsewhere.

A run is a stretch of consecutive blocks of one chain that live alike: used by the same sequences, released together,
copied to the same tiers. Nearly all work is per run, not per block, and what is per block is a slice of a list. A
digest commits to everything before it, so whether two chains agree up to a block is one comparison, and where they part
is found by bisection; there is no table of all blocks.

A run loses its pages before its place: one that left the index stays as a hollow run, which nobody can match, as long
as it is remembered why it left (`reasons.py`) or living runs are below it. Computed again, it is filled again.
"""

import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from engine_agent.cache.keys import Digest, Digests, common_blocks

GoneReason = Literal["expired", "evicted", "quota", "disabled"]


class TierCopy:
    """The pages of one run in one tier, and its place in a list of that tier."""

    __slots__ = ("is_listed", "newer", "older", "pages", "run")

    def __init__(self, run: "Run", pages: Iterable[int]) -> None:
        self.run = run
        self.pages = array("q", pages)  # side by side, for the reason Digests gives
        self.older: TierCopy = self
        self.newer: TierCopy = self
        self.is_listed = False

    @property
    def is_movable(self) -> bool:
        """A sequence's block table names its pages, so the pages of a run in use stay where they are."""
        return not self.run.holders


class Run:
    """Consecutive blocks of one chain. `created` never falls from one to the next; the rest they have in common."""

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
        self.strangers = 0  # those among them whose table has other pages, from before it expired and was revived
        self.pins = 0
        self.age_entry = self.cap_entry = math.inf  # with which time it waits in the queues of `expiry.ByTime`
        self.ghost: Ghost | None = None  # why it is hollow, as long as that is remembered

    @property
    def end(self) -> int:
        return self.start + len(self.digests)

    @property
    def is_hollow(self) -> bool:
        return not any(self.copies)

    def from_root(self) -> "list[Run]":
        """The runs that lead to this one, and it."""
        path, run = [], self
        while run.parent:
            path.append(run)
            run = run.parent
        return path[::-1]

    def below(self) -> Iterator["Run"]:
        """Every run under this one, parents first."""
        waiting = list(self.children.values())
        while waiting:
            run = waiting.pop()
            yield run
            waiting.extend(run.children.values())


class Ghost:
    """One departure: why those blocks left, and the hollow runs that stand for them. Known by identity."""

    __slots__ = ("at", "by", "live", "reason", "runs")

    def __init__(self, reason: GoneReason, by: str | None, at: float) -> None:
        self.reason = reason
        self.by = by  # the namespace whose need displaced it
        self.at = at
        self.runs: list[Run] = []
        self.live = 0  # of those, how many were not computed again since


@dataclass(frozen=True, slots=True)
class Kinship:
    """What chains that hold the same prompts in different KV formats have in common."""

    model_revision: str
    salt: bytes = field(repr=False)  # the client's


@dataclass(slots=True)
class Chain:
    """A prompt's blocks as a namespace knows them: where they begin, and their digests, which may become more."""

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
        self.pinned_blocks = 0  # as deep as the deepest of its pins
        self.is_retired = False

    def walk(self, digests: Digests, stop: int, is_alive: Callable[[Run], bool]) -> tuple[list[Run], int]:
        """The longest living prefix of `digests[:stop]`: its runs, the last of them perhaps in part, and its length."""
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
        """Every run, parents first."""
        return self.top.below()

    def run_with(self, page: int, tier: int) -> Run | None:
        """Whose page that is. Looks at every run."""
        return next((run for run in self.runs() if (copy := run.copies[tier]) and page in copy.pages), None)


def add_run(parent: Run, digests: Digests) -> Run:
    run = Run(parent.tree, parent, parent.end, digests)
    parent.children[digests[0]] = run
    return run


def split_run(run: Run, blocks: int) -> Run:
    """Cut the first `blocks` off into a run of their own above it, which is returned. Who holds `run` still holds all.

    The pages of the new run's copies belong to it now; putting those copies into lists is up to the caller.
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
    """Take a hollow run that nobody needs out of its tree, and those above it that only led to it."""
    while run.parent and not run.children and not run.holders and not run.ghost and run.is_hollow:
        parent, first = run.parent, run.digests[0]
        if parent.children.get(first) is not run:  # it went with one below it
            return
        del parent.children[first]
        run = parent
