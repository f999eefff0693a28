"""What was worked out once and may be wanted again: as many bytes of it as may be, the longest unused going first."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
BESIDE_BYTES = 200  # that remembering something takes beside the thing itself


class Remembered(Generic[K, V]):
    """For any thread."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self.held_bytes = most_bytes, 0
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: K) -> V | None:
        with self._lock:
            if (found := self._held.get(key)) is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """What alone is more than may be is not kept."""
        size += BESIDE_BYTES
        if size > self._most:
            return
        with self._lock:
            _, before = self._held.pop(key, (None, 0))
            self._held[key] = (value, size)
            self.held_bytes += size - before
            while self.held_bytes > self._most:
                _, (_, gone) = self._held.popitem(last=False)
                self.held_bytes -= gone
