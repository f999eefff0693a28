"""A small LRU cache, safe for several threads of one process."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Drops the least recently used value when it is full."""

    def __init__(self, capacity: int) -> None:
        self._most = capacity
        self._held: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def make_room(self, capacity: int) -> None:
        """Raise the capacity to at least this number."""
        with self._lock:
            self._most = max(self._most, capacity)

    def get(self, key: K) -> V | None:
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def put(self, key: K, value: V) -> V:
        with self._lock:
            self._held[key] = value
            self._held.move_to_end(key)
            while len(self._held) > self._most:
                self._held.popitem(last=False)
        return value
