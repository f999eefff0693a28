"""Memory that a process that renders shares with its parent: a long chat crosses a socket ten times more slowly.

One side writes, tells the other how many bytes, and waits; so neither needs a lock.
"""

import os
import tempfile
from mmap import mmap

USUAL_BYTES = 4 << 20


class Exchange:
    """`fd` is a file of USUAL_BYTES or more, and the exchange closes it."""

    def __init__(self, fd: int) -> None:
        self._file = open(fd, "r+b", buffering=0)  # noqa: SIM115 (closed by `close`)
        self._map = mmap(fd, USUAL_BYTES)

    @property
    def fd(self) -> int:
        return self._file.fileno()

    @property
    def is_usual(self) -> bool:
        """Whether it holds no more memory than most chats need."""
        return len(self._map) <= USUAL_BYTES

    def put(self, data: bytes) -> int:
        """Return how many bytes."""
        if len(data) > len(self._map):
            os.ftruncate(self.fd, len(data))
            self._map = mmap(self.fd, len(data))
        self._map[: len(data)] = data
        return len(data)

    def take(self, size: int) -> bytes:
        """Return what the other side has put there."""
        if size > len(self._map):
            self._map = mmap(self.fd, size)
        return self._map[:size]

    def close(self) -> None:
        self._map.close()
        self._file.close()


def exchange_open() -> Exchange:
    """Raises OSError."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("luminet-chats")
    else:
        fd, path = tempfile.mkstemp()
        os.unlink(path)
    os.ftruncate(fd, USUAL_BYTES)
    return Exchange(fd)
