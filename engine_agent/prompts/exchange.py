"""Memory that a renderer process shares with its parent: sending a long chat over a socket takes ten times as long.

One side writes, sends the other the number of bytes, and waits; so neither needs a lock.
"""

import os
import tempfile
from mmap import mmap

USUAL_BYTES = 4 << 20


class Exchange:
    """Shared memory in the file `fd`, which has USUAL_BYTES or more. `close` closes the file."""

    def __init__(self, fd: int) -> None:
        self._file = open(fd, "r+b", buffering=0)  # noqa: SIM115 (closed by `close`)
        self._map = mmap(fd, USUAL_BYTES)

    @property
    def fd(self) -> int:
        return self._file.fileno()

    @property
    def is_usual(self) -> bool:
        """Return whether it has no more memory than most chats need."""
        return len(self._map) <= USUAL_BYTES

    def put(self, data: bytes) -> int:
        """Write the data, and return its size."""
        if len(data) > len(self._map):
            os.ftruncate(self.fd, len(data))
            self._map = mmap(self.fd, len(data))
        self._map[: len(data)] = data
        return len(data)

    def take(self, size: int) -> bytes:
        """Return what the other side has written."""
        if size > len(self._map):
            self._map = mmap(self.fd, size)
        return self._map[:size]

    def close(self) -> None:
        self._map.close()
        self._file.close()


def exchange_open() -> Exchange:
    """Raise OSError if the memory cannot be created."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("luminet-chats")
    else:
        fd, path = tempfile.mkstemp()
        os.unlink(path)
    os.ftruncate(fd, USUAL_BYTES)
    return Exchange(fd)
