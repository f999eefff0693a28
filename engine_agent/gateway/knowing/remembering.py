"""A cache of computed values, bounded in bytes, that evicts the least recently used."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
BESIDE_BYTES = 200  # overhead of an entry, in addition to its value


class Remembered(Generic[K, V]):
    """A thread-safe LRU cache."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self.held_bytes = most_bytes, 0
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: K) -> V | None:
        with self._lock:
            if (entry := self._held.get(key)) is None:
                return None
            self._held.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Store a value, unless it alone exceeds the limit."""
        size += BESIDE_BYTES
        if size > self._most:
            return
        with self._lock:
            _, previous_bytes = self._held.pop(key, (None, 0))
            self._held[key] = (value, size)
            self.held_bytes += size - previous_bytes
            while self.held_bytes > self._most:
                _, (_, evicted_bytes) = self._held.popitem(last=False)
                self.held_bytes -= evicted_bytes
