"""Chooses which prompts to sample, and stores the samples, bounded for each namespace and in total.

After its first few, a namespace gives one prompt a second, so that a busy namespace costs no more than another.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine_agent.divergence.analysing import Sample

MOST_TOKENS = 2_048  # sampled per prompt: a difference further back costs fewer hits
MOST_PROMPTS = 48  # stored per namespace: the newest
LEAST_PROMPTS = 8  # needed for an analysis
LEAST_NEW = 4
MOST_NAMESPACES = 2_000
MOST_BYTES = 16 << 20  # limit of all marks together
MOST_A_SECOND = 4.0  # samples from all namespaces together
AT_ONCE = 12.0  # samples that a quiet namespace may give at once
LOOK_SECONDS = 60.0  # time between two analyses of one namespace
FIRST_LOOK_SECONDS = 10.0  # the first analysis comes early, for users who experiment


@dataclass(slots=True)
class Allowance:
    """A token bucket of size `most` that refills by `a_second`."""

    most: float
    a_second: float
    left: float
    at: float

    def take(self, now: float) -> bool:
        self.left = min(self.most, self.left + max(0.0, now - self.at) * self.a_second)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class Collected:
    """The samples of one namespace."""

    allowance: Allowance
    prompts: deque[Sample] = field(default_factory=lambda: deque(maxlen=MOST_PROMPTS))
    new: int = 0  # prompts since the last analysis
    looked_at: float = 0.0
    bytes: int = 0


class Sampling:
    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        self._all = Allowance(AT_ONCE * 2, MOST_A_SECOND, AT_ONCE * 2, 0.0)
        self._namespaces: OrderedDict[str, Collected] = OrderedDict()  # longest quiet first

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def namespaces(self) -> int:
        return len(self._namespaces)

    def wants(self, namespace: str, now: float) -> bool:
        collected = self._namespaces.get(namespace)
        if collected is None:
            looked_at = now - LOOK_SECONDS + FIRST_LOOK_SECONDS
            collected = self._namespaces[namespace] = Collected(
                Allowance(AT_ONCE, 1.0, AT_ONCE, now), looked_at=looked_at
            )
            if len(self._namespaces) > MOST_NAMESPACES:
                self.forget(next(iter(self._namespaces)))
        return collected.allowance.take(now) and self._all.take(now)

    def keep(self, namespace: str, sample: Sample) -> None:
        collected = self._namespaces.get(namespace)
        if collected is None:  # it was quiet for so long that it was dropped to make room
            return
        dropped_bytes = len(collected.prompts[0].marks) if len(collected.prompts) == MOST_PROMPTS else 0
        collected.prompts.append(sample)
        collected.new += 1
        collected.bytes += len(sample.marks) - dropped_bytes
        self._bytes += len(sample.marks) - dropped_bytes
        self._namespaces.move_to_end(namespace)
        while self._bytes > self._most and len(self._namespaces) > 1:
            self.forget(next(iter(self._namespaces)))

    def forget(self, namespace: str) -> None:
        dropped = self._namespaces.pop(namespace, None)
        self._bytes -= dropped.bytes if dropped is not None else 0

    def due(self, now: float) -> str | None:
        """Return the namespace to analyse next: its sample has grown, and its last analysis is long ago."""
        waiting = (
            (collected.looked_at, name)
            for name, collected in self._namespaces.items()
            if collected.new >= LEAST_NEW
            and len(collected.prompts) >= LEAST_PROMPTS
            and now - collected.looked_at >= LOOK_SECONDS
        )
        return min(waiting, default=(0.0, None))[1]

    def look(self, namespace: str, now: float) -> Sequence[Sample]:
        collected = self._namespaces[namespace]
        collected.new, collected.looked_at = 0, now
        return tuple(collected.prompts)
