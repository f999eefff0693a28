"""A simulated engine's journal: made-up requests at a constant rate, recorded as an engine would.

It is in memory and ends with its process. Its hits follow from the applied policies.
"""

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from engine_agent.journal.records import Closed, Entry, Opened
from engine_agent.sidecar.holder import HolderRejected, JournalBoot, JournalPage

PROMPT_TOKENS: Final = 512  # of each request
BLOCK_TOKENS: Final = 16
GENERATED_TOKENS: Final = (8, 64)
HIT_MS, MISS_MS = 20.0, 300.0  # until the first token
TOKEN_MS: Final = 15.0
MOST_AT_ONCE: Final = 2_000  # requests: a longer time between two calls loses some
MOST_RECORDS: Final = 100_000
RECORD_BYTES: Final = 500


@dataclass(frozen=True, slots=True)
class Asked:
    """One namespace and its policy, from the snapshot."""

    namespace: str
    slug: str
    organisation_id: str
    organisation: str
    revision: int
    kv_dtype: str
    hit_ratio: float
    is_caching: bool


@dataclass(slots=True)
class SimulatedJournal:
    """The journal. `rate`: requests a second, of all namespaces together."""

    boot: str
    rate: float
    last: int = 0
    _entries: deque[Entry] = field(default_factory=deque)
    _totals: dict[str, list[int]] = field(default_factory=dict)
    _until: float | None = None
    _due: float = 0.0
    _turn: int = 0

    def go_on(self, profiles: Sequence[Asked], *, now: float, at: float) -> None:
        """Record the requests up to now: `now` by a monotonic clock, `at` in unix seconds."""
        seconds = 0.0 if self._until is None or not profiles else now - self._until
        self._until = now
        self._due += seconds * self.rate
        count, self._due = int(min(self._due, MOST_AT_ONCE)), self._due % 1
        for index in range(count if len(self._entries) < MOST_RECORDS else 0):
            self._turn += 1
            self._request(profiles[self._turn % len(profiles)], at - seconds * (1 - index / count))

    def _request(self, profile: Asked, at: float) -> None:
        dice = random.Random(f"{self.boot} {self._turn}")
        opened = _opened(
            profile, is_hit=dice.random() < profile.hit_ratio, at=at, request_id=f"{self.boot[:8]}-{self._turn}"
        )
        number = self._record(opened)
        tokens = dice.randint(*GENERATED_TOKENS)
        first = (HIT_MS if opened.cached_tokens else MISS_MS) * dice.lognormvariate(0.0, 0.3)
        duration = first + tokens * TOKEN_MS
        end = at + duration / 1_000
        self._record(Closed(number, opened.request_id, 1, end, "length", tokens, round(first, 3), round(duration, 3)))
        sums = self._totals.setdefault(profile.namespace, [0, 0, 0])
        for index, count in enumerate((1, opened.prompt_tokens, opened.cached_tokens)):
            sums[index] += count

    def _record(self, record: Opened | Closed) -> int:
        self.last += 1
        self._entries.append(Entry(self.last, record))
        return self.last

    @property
    def namespaces(self) -> Sequence[str]:
        """The namespaces with recorded requests."""
        return list(self._totals)

    # The journal methods of a Holder

    def boots(self) -> list[JournalBoot]:
        size = len(self._entries) * RECORD_BYTES
        return [JournalBoot(self.boot, self.last, size, is_current=True)] if self.last else []

    def page(self, boot: str, after: int, limit: int) -> JournalPage:
        if boot != self.boot:
            raise HolderRejected(f"no record of the boot {boot[:64]!r} is here")
        first = self._entries[0].sequence if self._entries else self.last + 1
        entries = list(islice(self._entries, max(0, after + 1 - first), max(0, after + 1 - first) + limit))
        last = entries[-1].sequence if len(entries) == limit else max(self.last, after)
        lost = [(after + 1, first - 1)] if after + 1 < first else []
        return JournalPage(last, entries, lost, self._told() if last == self.last else None)

    def _told(self) -> Mapping[str, Sequence[int]]:
        return {namespace: list(sums) for namespace, sums in self._totals.items()}

    def cut(self, boot: str, upto: int) -> None:
        while boot == self.boot and self._entries and self._entries[0].sequence <= upto:
            self._entries.popleft()


def _opened(profile: Asked, *, is_hit: bool, at: float, request_id: str) -> Opened:
    cached = PROMPT_TOKENS - BLOCK_TOKENS if is_hit else 0
    reason = "expired" if profile.is_caching else "disabled"
    missed: dict[str, Any] = {"tail": BLOCK_TOKENS} if is_hit else {reason: PROMPT_TOKENS}
    return Opened(
        request_id=request_id,
        attempt=1,
        kind="customer",
        at=at,
        organisation_id=profile.organisation_id,
        organisation=profile.organisation,
        namespace_id=profile.namespace,
        namespace=profile.slug,
        policy_revision=profile.revision,
        model="simulated",
        kv_dtype=profile.kv_dtype,
        prompt_tokens=PROMPT_TOKENS,
        cached_tokens=cached,
        miss_reason="none" if is_hit else reason,
        missed=missed,
    )
