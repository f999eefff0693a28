"""Reuse gaps: how long a namespace's blocks wait for their next use, and how many other blocks are used meanwhile.

The record is enough to compute what another TTL or limit would do to the hit ratio; it does not contain the traffic
itself. This module models a cache and does not expire or evict: blocks are used at the moment of admission, and the
model evicts the least recently used block first, leaves first.

**Exactness.** Under a sliding TTL and a limit, a block is hit iff its gap is shorter than the TTL and fewer than
`limit` other blocks were used since: blocks used since then expire later and are evicted later. So one sparse histogram
over (gap, distance) covers both, and its edges are the TTLs that people choose.

**Size.** Blocks that were used together are one *run* with one last use: a conversation is one run of any length, and
the head it shares with others is another. A run is found by its *marks*, the digests at a few depths of the chain
(powers of four, plus more where many blocks depend on where chains part). Its end is found by *prints*, prefixes of the
digests of a few of its last blocks.

**Absolute TTLs** couple the blocks of a chain, since all blocks after the first miss are recomputed. So a run records
when it was created under each of a few ages; between those ages, the loss against the sliding TTL of the same length is
interpolated. A run is represented by its first block, because creation times rise with depth. With a limit or a shorter
sliding TTL on top, an age costs hits only where every gap within that age was survived; gaps are treated as
independent.

**Bounds.** Past about `max_samples` runs the record is thinned: a run stays with a chance that rises with its blocks
and falls with the blocks used since, and counts 1 / chance from then on (Horvitz and Thompson). So every octave of
distance keeps equally many runs, hot heads always stay, and no randomness is involved: survivors are taken at even
steps. A block that returns after it was dropped looks new, which flatters absolute TTLs longer than the unthinned part
of the record.

**Cost.** Memory is under 1 KB at first, about 1 KB more for each conversation, and at most 1 KB × max_samples in total;
the histogram has a few hundred cells of 110 bytes in practice, and at most 6,300. An observation looks at no more than
45 digests, whatever the length of the prompt.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby, pairwise
from math import exp2, inf, log
from operator import add, attrgetter
from typing import Final, cast

from engine_agent.cache.policy import LONGEST_TTL_SECONDS
from engine_agent.contracts.policy_fields import TtlMode

HALF_LIFE_SECONDS: Final = 86_400.0
HORIZON_SECONDS: Final = float(LONGEST_TTL_SECONDS)  # runs that were not used for longer are forgotten
DEPTHS: Final[Sequence[int]] = (0, *(4**n for n in range(10)))

_HOUR, _DAY = 3_600.0, 86_400.0
_STEPS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)
# Upper edges of bins: a gap is shorter than its edge, a distance at most its edge.
_GAPS = (
    *(0.1, 0.2, 0.5),
    *(unit * step for unit in (1.0, 60.0, _HOUR) for step in _STEPS if unit * step < _DAY),
    *(_DAY * days for days in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7)),
)
_DISTANCES = (
    *(8, 16, 32),
    *(step << octave for octave in range(5, 9) for step in (2, 3)),
    *(step << octave for octave in range(8, 30) for step in (4, 5, 6, 7)),
    1 << 62,
)
_AGES = (30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, _HOUR, 6 * _HOUR, _DAY, HORIZON_SECONDS)
_EVERY_AGE = range(len(_AGES))

_MAX_DEPTHS = 32
_WORTH_A_MARK = 0.004  # the share of all blocks that must depend on where two chains part before another mark is added
_SURE = 1 / 64  # the least that each parting adds, even a certain one, so that its mark stays
_BACK, _PRINT = (1, 2, 4, 8, 16, 32), 8
_RUN_COST = 4  # in marks
_FULL, _THINNED = 0.9, 0.6  # as shares of the allowed cost
_MIN_SLOTS = 64
_CHUNK_BITS = 6
_TRACE = 1e-3  # blocks; smaller amounts get no entry


class _Run:
    """Blocks start … end of one chain that were last used together. Marks point to the run; it has no link back."""

    __slots__ = ("born", "born_by_age", "chance", "dies", "end", "is_shared", "last_use", "slot", "start", "tail")

    def __init__(self, start: int, end: int, *, slot: int, now: float) -> None:
        self.start = start
        self.end = end
        self.tail = b""  # prefixes of the digests at `_BACK` from its end; empty where its end was estimated
        self.is_shared = False  # chains part at its end, so the blocks after it are another run
        self.slot = slot
        self.last_use = now
        self.chance = 1.0  # probability of having stayed since the last use: the run stands for 1 / chance such runs
        self.born = now
        self.born_by_age: list[float] | None = None  # creation time by candidate age, if recomputed since
        self.dies = now + _AGES[0]  # the earliest expiry under any candidate age

    def split(self, stop: int) -> "_Run":
        """Split off the part above `stop`, which several chains share, and return it."""
        head = _Run(min(self.start, stop), stop, slot=self.slot, now=self.last_use)
        head.is_shared, head.chance = True, self.chance
        head.born, head.born_by_age, head.dies = self.born, self.born_by_age, self.dies
        self.start = max(self.start, stop)
        return head

    def still(self) -> "_Run":
        """Return a copy with only the fields that `resident_blocks` needs."""
        duplicate = _Run(self.start, self.end, slot=self.slot, now=self.last_use)
        duplicate.chance = self.chance
        return duplicate

    def made(self) -> list[float]:
        return self.born_by_age or [self.born] * len(_AGES)

    def is_as_old_as(self, run: "_Run") -> bool:
        return all(
            abs(own_birth - run_birth) <= age / 16
            for own_birth, run_birth, age in zip(self.made(), run.made(), _AGES, strict=True)
        )

    def renew(self, alive: Sequence[int], now: float) -> list[int]:
        """Return under which of these ages the run is alive. Under all others it counts as recomputed now."""
        previous_births = self.made()
        self.born_by_age = births = [now] * len(_AGES)
        surviving = [age_index for age_index in alive if now - previous_births[age_index] < _AGES[age_index]]
        for age_index in surviving:
            births[age_index] = previous_births[age_index]
        self.dies = min(map(add, births, _AGES))
        return surviving


class _Recency:
    """The number of blocks last used by each request, the oldest first, with fast sums over the newest."""

    __slots__ = ("_chunks", "_slots")

    def __init__(self) -> None:
        self._slots: list[float] = []
        self._chunks: list[float] = []

    def __len__(self) -> int:
        return len(self._slots)

    def append(self, blocks: float) -> None:
        if len(self._slots) >> _CHUNK_BITS == len(self._chunks):
            self._chunks.append(0)
        self._slots.append(blocks)
        self._chunks[-1] += blocks

    def take(self, slot: int, blocks: float) -> float:
        """Remove blocks of this request, which are used again, and return how many blocks were used after it."""
        chunk = slot >> _CHUNK_BITS
        self._slots[slot] -= blocks
        self._chunks[chunk] -= blocks
        chunk += 1
        return sum(self._slots[slot + 1 : chunk << _CHUNK_BITS]) + sum(self._chunks[chunk:])


class ReuseGaps:
    """One namespace's record. Call `observe` for every admitted request, then query it. Old traffic fades (`decay`)."""

    __slots__ = (
        "_absolute",
        "_blocks",
        "_depths",
        "_due",
        "_first_depths",
        "_half_life",
        "_halves_at",
        "_histogram",
        "_max_cost",
        "_parted",
        "_prompt_tokens",
        "_recency",
        "_run_count",
        "_runs",
        "_seconds",
        "_slot_limit",
        "_until",
        "_whatever_age",
        "block_tokens",
    )

    def __init__(
        self,
        *,
        block_tokens: int,
        max_samples: int = 2048,
        half_life_seconds: float = HALF_LIFE_SECONDS,
        depths: Sequence[int] = DEPTHS,
    ) -> None:
        self.block_tokens = block_tokens
        self._max_cost = 2 * _RUN_COST * max_samples
        self._half_life = half_life_seconds
        self._first_depths = self._depths = tuple(depths)
        self._parted: dict[int, float] = {}  # depth of a mark → blocks before the next mark of uncertain use
        self._runs: dict[bytes, _Run] = {}  # by mark
        self._run_count = 0  # an upper bound; `_tidy` finds the runs that lost all their marks
        self._recency = _Recency()
        self._slot_limit = _MIN_SLOTS
        self._due = 0.5  # the fraction carried over to the next run when thinning
        self._histogram: dict[int, float] = {}  # bin of gap, bin of distance → blocks used again
        self._whatever_age = 0.0  # blocks used again while alive under every candidate age
        self._absolute: array[float] | None = None  # likewise for each age, for blocks not alive under all of them
        self._blocks = 0.0
        self._prompt_tokens = 0.0
        self._seconds = 0.0
        self._halves_at = -inf
        self._until = -inf

    # Recording

    def observe(self, digests: Sequence[bytes], prompt_tokens: int, now: float) -> None:
        """Record an admitted request, given the digests of its matchable full blocks in the order of the chain."""
        if now >= self._halves_at:
            self.decay(now)
        self._until = max(now, self._until)
        self._prompt_tokens += prompt_tokens
        self._blocks += len(digests)
        if digests:
            self._follow(digests, now)
            cost = len(self._runs) + _RUN_COST * self._run_count
            if cost > self._max_cost or len(self._recency) > self._slot_limit:
                self._tidy(now)

    def decay(self, now: float) -> None:
        """Halve all counts once per half-life, so that they describe the last days, and forget runs past the horizon.

        `observe` calls this itself. A separate call frees the memory of a namespace that has no traffic any more.
        """
        if self._halves_at == -inf:
            self._halves_at = now + self._half_life
        halvings = 1 + (now - self._halves_at) // self._half_life
        if halvings < 1:
            return
        keep = exp2(-halvings)
        self._halves_at += halvings * self._half_life
        self._seconds = self._seconds * keep + self._half_life * (1 - keep)
        self._blocks *= keep
        self._prompt_tokens *= keep
        self._whatever_age *= keep
        if self._absolute:
            self._absolute = array("d", [blocks * keep for blocks in self._absolute])
        self._histogram = {
            cell: decayed for cell, blocks in self._histogram.items() if (decayed := blocks * keep) > _TRACE
        }
        self._parted = {depth: decayed for depth, unsure in self._parted.items() if (decayed := unsure * keep) > _TRACE}
        self._tidy(now)

    # Queries

    def still(self) -> "ReuseGaps":
        """Return a copy that another thread can query. It cannot record anything more."""
        duplicate = ReuseGaps(block_tokens=self.block_tokens, half_life_seconds=self._half_life)
        duplicate._histogram, duplicate._absolute = dict(self._histogram), self._absolute and self._absolute[:]
        duplicate._whatever_age, duplicate._blocks, duplicate._prompt_tokens = (
            self._whatever_age,
            self._blocks,
            self._prompt_tokens,
        )
        duplicate._seconds, duplicate._halves_at, duplicate._until = self._seconds, self._halves_at, self._until
        duplicate._runs = {number.to_bytes(8): run.still() for number, run in enumerate(set(self._runs.values()))}
        return duplicate

    @property
    def prompt_tokens(self) -> float:
        """Return the prompt tokens in the record. Old ones fade."""
        return self._prompt_tokens

    def hit_ratio(
        self,
        *,
        ttl_seconds: float | None,
        ttl_mode: TtlMode = "sliding",
        max_age_seconds: float | None = None,
        limit_blocks: int | None = None,
    ) -> float | None:
        """Return hit tokens over prompt tokens under this policy, or None without traffic."""
        if self._prompt_tokens <= 0:
            return None
        ttl, age, limit = _bounds(ttl_seconds, ttl_mode, max_age_seconds, limit_blocks)
        return min(1.0, self._hits(ttl, age, limit) * self.block_tokens / self._prompt_tokens)

    def curve(
        self,
        ttls: Iterable[float],
        *,
        ttl_mode: TtlMode = "sliding",
        max_age_seconds: float | None = None,
        limit_blocks: int | None = None,
    ) -> list[float | None]:
        """Return `hit_ratio` at each of these TTLs."""
        return [
            self.hit_ratio(
                ttl_seconds=ttl, ttl_mode=ttl_mode, max_age_seconds=max_age_seconds, limit_blocks=limit_blocks
            )
            for ttl in ttls
        ]

    def resident_blocks(
        self,
        *,
        ttl_seconds: float | None,
        ttl_mode: TtlMode = "sliding",
        max_age_seconds: float | None = None,
        limit_blocks: int | None = None,
    ) -> float | None:
        """Return the average number of resident blocks if none were in flight, or None while no time has passed.

        By Little's law: every use keeps a block until its next use, or for the TTL when that is shorter.
        """
        seconds = self._seconds + self._until - self._halves_at + self._half_life
        if not self._blocks or not seconds > 0:
            return None
        ttl, age, limit = _bounds(ttl_seconds, ttl_mode, max_age_seconds, limit_blocks)
        life = min(ttl, age, HORIZON_SECONDS)
        shares, edges = _shares(_GAPS, life), (0.0, *_GAPS, inf)
        area = life * self._blocks
        for cell, blocks in self._histogram.items():
            row = cell >> 8
            area -= blocks * shares[row] * (life - (edges[row] + min(life, edges[row + 1])) / 2)
        to_come = sum(
            (run.end - run.start) / run.chance * (life - self._until + run.last_use) * self._faded(run.last_use)
            for run in set(self._runs.values())
            if self._until - run.last_use < life
        )
        mean = (area - to_come) / seconds
        if age <= ttl and area > 0:
            mean *= min(1.0, life * (self._blocks - self._hits(ttl, age, inf)) / area)  # only misses renew it
        return min(limit, max(0.0, mean))

    def _hits(self, ttl: float, age: float, limit: float) -> float:
        """Return hits in blocks. An age costs its own loss times the chance that nothing else ended a block earlier."""
        hits, mean_gap = self._hits_without_age(min(ttl, age), limit)
        if age == inf or not hits:
            return hits
        hits_by_age_only, _ = self._hits_without_age(age, inf)
        lost_hits = hits_by_age_only * (1 - self._survival(age))
        gaps_within_age = 1 + age / max(mean_gap, age / 1_000)
        return float(max(0.0, hits - lost_hits * (hits / hits_by_age_only) ** gaps_within_age))

    def _hits_without_age(self, ttl: float, limit: float) -> tuple[float, float]:
        """Return the hit blocks, and their mean gap."""
        by_gap, by_distance, edges = _shares(_GAPS, ttl), _shares(_DISTANCES, limit), (0.0, *_GAPS, HORIZON_SECONDS)
        hits = waited = 0.0
        for cell, blocks in self._histogram.items():
            row = cell >> 8
            cell_hits = blocks * by_gap[row] * by_distance[cell & 255]
            hits += cell_hits
            waited += cell_hits * (edges[row] + edges[row + 1]) / 2
        return hits, waited / hits if hits else 0.0

    def _survival(self, age: float) -> float:
        """Return the share of a sliding TTL's hits that an absolute TTL of the same length keeps, or interpolate it."""
        if self._absolute is None:
            return 1.0
        age = min(max(age, _AGES[0]), _AGES[-1])
        at = bisect_left(_AGES, age)
        if age == _AGES[at]:
            return self._known_survival(at)
        low, high = _AGES[at - 1], _AGES[at]
        below, above = self._known_survival(at - 1), self._known_survival(at)
        return below + (above - below) * log(age / low) / log(high / low)

    def _known_survival(self, age_index: int) -> float:
        assert self._absolute is not None
        sliding, _ = self._hits_without_age(_AGES[age_index], inf)
        return min(1.0, (self._whatever_age + self._absolute[age_index]) / sliding) if sliding else 1.0

    # Bookkeeping

    def _follow(self, digests: Sequence[bytes], now: float) -> None:
        """Mark a chain's known runs as used again, from the head to where the chain parts; add the rest as new."""
        depths, length = self._depths, len(digests)
        marks = [digests[depth] for depth in depths[: bisect_left(depths, length)]]
        known_runs = self._known(marks)
        known_count = len(known_runs)
        slot = used_in = len(self._recency)
        last: _Run | None = None
        alive: Sequence[int] = _EVERY_AGE
        start = above = first = 0
        while (
            first < known_count and known_runs[first].slot != slot
        ):  # a mark may be out of order after depths were dropped
            run = known_runs[first]
            is_together, used_in = run.slot == used_in, run.slot
            next_mark = known_count if known_runs[-1] is run else first + 1
            while next_mark < known_count and known_runs[next_mark] is run:
                next_mark += 1
            if next_mark == known_count:
                stop = self._parting(run, digests, next_mark - 1)
            else:
                stop = min(run.end, max(known_runs[next_mark].start, depths[next_mark]))
            stop = min(max(start, stop), length)
            head, last = last, run if stop >= run.end else self._cut(run, stop, marks[first:next_mark], next_mark)
            alive = self._use(last, start, stop, alive, now)
            if is_together and head and self._merge(head, last, marks[above:first]):
                first = above
            start, above, first = stop, first, next_mark
        if start < length:
            self._extend(last, start, digests, marks[first:], now)
        self._recency.append(length)

    def _known(self, marks: Sequence[bytes]) -> list[_Run]:
        """Return the runs of the leading known marks. A known mark implies all marks above it, even missing ones."""
        runs = list(map(self._runs.get, marks))
        while runs and runs[-1] is None:
            runs.pop()
        if None in runs:
            self._fill(runs, marks)
        return cast("list[_Run]", runs)

    def _fill(self, runs: list[_Run | None], marks: Sequence[bytes]) -> None:
        """Assign each mark without a run to the run above, if that extends so far, or else to the next run."""
        for at, run in enumerate(runs):
            if run is None:
                above = runs[at - 1] if at else None
                if above is None or above.end <= self._depths[at]:
                    above = next(below for below in runs[at:] if below is not None)
                runs[at] = self._runs[marks[at]] = above

    def _parting(self, run: _Run, digests: Sequence[bytes], mark: int) -> int:
        """Return where a chain leaves its last known run: at the run's end, or before its next mark or print."""
        end, tail, least_depth, most_depth = run.end, run.tail, self._depths[mark] + 1, len(digests)
        if tail and least_depth <= end <= most_depth and digests[end - 1].startswith(tail[:_PRINT]):
            return end
        below = self._depths[mark + 1] if mark + 1 < len(self._depths) else max(end, most_depth)
        # When the chain ends first, the run's later blocks cannot be found again.
        hidden_blocks = min(end, below) - most_depth
        most_depth = min(most_depth, below)
        for at in range(0, len(tail), _PRINT):
            depth = end - _BACK[at // _PRINT]
            if depth < least_depth:
                break
            if depth < len(digests) and digests[depth].startswith(tail[at : at + _PRINT]):
                least_depth = depth + 1
                break
            most_depth = min(most_depth, depth)
        self._look_closer(mark, max(most_depth - least_depth, hidden_blocks))
        if not tail and least_depth <= end <= most_depth:
            return end
        return max(least_depth, (least_depth + min(most_depth, end)) // 2)

    def _look_closer(self, mark: int, unsure: int) -> None:
        """Add a mark between this one and the next if many blocks depend on where chains part between them."""
        depth, below = [*self._depths, 0][mark : mark + 2]
        parted = self._parted[depth] = self._parted.get(depth, 0.0) + max(unsure, _SURE)
        if parted > _WORTH_A_MARK * self._blocks and below - depth > 1 and len(self._depths) < _MAX_DEPTHS:
            self._depths = tuple(sorted((*self._depths, (depth + below) // 2)))
            self._parted[depth] = 0.0

    def _cut(self, run: _Run, stop: int, marks: Sequence[bytes], next_mark: int) -> _Run:
        """Return the part of the run above `stop`, with these marks. The part below stays a run while it has marks."""
        if next_mark == len(self._depths) or self._depths[next_mark] >= run.end:
            run.tail = b""
            return run
        head = run.split(stop)
        self._run_count += 1
        self._runs.update(dict.fromkeys(marks, head))
        return head

    def _merge(self, head: _Run, run: _Run, marks: Sequence[bytes]) -> bool:
        """Join two shared runs, one directly below the other, that were created together and are used together."""
        if not (head.is_shared and run.is_shared and run.is_as_old_as(head)):
            return False
        run.start, head.start = head.start, head.end
        self._runs.update(dict.fromkeys(marks, run))
        return True

    def _drop_useless_depths(self) -> None:
        """Drop added depths where chains no longer part on either side."""
        parted = [self._parted.get(depth, 0.0) for depth in self._depths]
        used_depths = {
            depth for depth, neighbours in zip(self._depths[1:], pairwise(parted), strict=True) if any(neighbours)
        }
        self._depths = tuple(depth for depth in self._depths if depth in used_depths or depth in self._first_depths)

    def _use(self, run: _Run, start: int, stop: int, alive: Sequence[int], now: float) -> Sequence[int]:
        """Use blocks start … stop of a chain, all of this run, again. Return the ages under which they were alive."""
        chance = run.chance
        known_from = start if run.start <= start else min(run.start, stop)  # the record forgot some blocks above it
        newer = self._recency.take(run.slot, (min(run.end, stop) - min(run.start, stop)) / chance)
        self._count(now - run.last_use, newer + known_from, stop - known_from, chance)
        blocks = (stop - known_from) / chance
        if alive is _EVERY_AGE and now < run.dies:
            self._whatever_age += blocks
        else:
            alive = run.renew(alive, now)
            self._count_alive(alive, blocks)
        run.start, run.end, run.slot, run.last_use, run.chance = start, stop, len(self._recency), now, 1.0
        return alive

    def _extend(
        self, run: _Run | None, start: int, digests: Sequence[bytes], marks: Sequence[bytes], now: float
    ) -> None:
        """Add the rest of a chain as new blocks: to its last run, or as a new run if that one is shared."""
        if run is None or run.is_shared:
            run = _Run(start, len(digests), slot=len(self._recency), now=now)
            self._run_count += 1
        run.end = len(digests)
        run.tail = b"".join([digests[-distance][:_PRINT] for distance in _BACK if distance <= run.end])
        for mark in marks:
            self._runs[mark] = run

    def _count(self, gap: float, newer: float, blocks: float, chance: float) -> None:
        """Count reused blocks of one run: the first at distance `newer`, each further one at a distance one greater."""
        row, column = bisect_right(_GAPS, gap) << 8, bisect_left(_DISTANCES, newer + 1)
        histogram = self._histogram
        while newer + blocks > (edge := _DISTANCES[column]):
            histogram[row + column] = histogram.get(row + column, 0.0) + (edge - newer) / chance
            blocks, newer, column = blocks - (edge - newer), edge, column + 1
        histogram[row + column] = histogram.get(row + column, 0.0) + blocks / chance

    def _count_alive(self, alive: Sequence[int], blocks: float) -> None:
        if self._absolute is None:
            self._absolute = array("d", [0.0 for _ in _AGES])
        for age_index in alive:
            self._absolute[age_index] += blocks

    def _faded(self, counted_at: float) -> float:
        """Return the share that remains now of a count made at `counted_at`."""
        return min(1.0, exp2(-((self._halves_at - counted_at) // self._half_life)))

    def _tidy(self, now: float) -> None:
        """Forget runs past the horizon or without marks, thin the rest if too many, and renumber the slots."""
        self._drop_useless_depths()
        runs = sorted(dict.fromkeys(self._runs.values()), key=attrgetter("slot"))
        remaining_runs = [run for run in runs if now - run.last_use <= HORIZON_SECONDS]
        while True:
            if len(remaining_runs) < len(runs):
                staying = set(remaining_runs)
                self._runs = {mark: run for mark, run in self._runs.items() if run in staying}
                runs = remaining_runs
            cost = len(self._runs) + _RUN_COST * len(runs)
            if cost <= _FULL * self._max_cost or len(runs) == 1:
                break
            remaining_runs = self._thin(runs, max(1.0, _THINNED * self._max_cost / cost * len(runs)))
        self._run_count = len(runs)
        self._slot_limit = 4 * len(runs) + _MIN_SLOTS
        self._recency = _Recency()
        for _, run_group in groupby(runs, key=attrgetter("slot")):
            blocks = 0.0
            for run in run_group:
                blocks += (run.end - run.start) / run.chance
                run.slot = len(self._recency)
            self._recency.append(blocks)

    def _thin(self, runs: list[_Run], target_count: float) -> list[_Run]:
        """Thin the runs, oldest first as given. A run's claim is its share of its own and all later blocks."""
        weights = [(run.end - run.start) / run.chance for run in runs]
        claims = [weight / (newer or 1) for weight, newer in zip(weights[::-1], accumulate(weights[::-1]), strict=True)]
        factor = _factor(sorted(claims), target_count)
        remaining_runs = []
        due = self._due
        for run, claim in zip(runs, reversed(claims), strict=True):
            stays = factor * claim
            if stays >= 1:
                remaining_runs.append(run)
                continue
            due += stays
            if due >= 1:
                due -= 1
                run.chance *= stays
                remaining_runs.append(run)
        self._due = due
        return remaining_runs


def _factor(claims: list[float], target_sum: float) -> float:
    """Return the factor with which the ascending claims become chances of at most 1 that sum up to `target_sum`."""
    sums = list(accumulate(claims))
    for certain_count in range(len(claims)):
        last = len(claims) - 1 - certain_count
        factor = (target_sum - certain_count) / sums[last] if sums[last] else inf
        if factor * claims[last] <= 1:
            return max(0.0, factor)
    return inf


def _bounds(
    ttl_seconds: float | None, ttl_mode: TtlMode, max_age_seconds: float | None, limit_blocks: int | None
) -> tuple[float, float, float]:
    """Return (TTL since the last use, age, blocks), infinite where there is no bound."""
    ttl = inf if ttl_seconds is None else ttl_seconds
    age = inf if max_age_seconds is None else max_age_seconds
    limit = inf if limit_blocks is None else limit_blocks
    return (inf, min(ttl, age), limit) if ttl_mode == "absolute" else (ttl, age, limit)


def _shares(edges: Sequence[float], value: float) -> list[float]:
    """Return the share of each bin that lies below a value, including the bin beyond the last edge."""
    inside = [min(1.0, max(0.0, (value - low) / (high - low))) for low, high in pairwise((0.0, *edges))]
    return [*inside, float(value == inf)]
