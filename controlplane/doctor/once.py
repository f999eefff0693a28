"""A fact that several checks want, found by the first that asks; the others wait for it."""

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    def __init__(self, find: Callable[[], T]) -> None:
        self._find = find
        self._lock = Lock()
        self._found: list[T] = []
        self._failed: Exception | None = None

    def __call__(self) -> T:
        """What was found, or what was raised, to everybody alike."""
        with self._lock:
            if not self._found and self._failed is None:
                try:
                    self._found.append(self._find())
                except Exception as error:
                    self._failed = error
        if self._failed is not None:
            raise self._failed
        return self._found[0]
