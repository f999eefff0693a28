"""Operations on bytes that the engine must carry out in order before its next step. The cache itself touches no bytes.

A page's offset follows from its id and the operation's own `kv_format` (`pool.Arena.offset(page, kv_format)`): by the
time the engine carries out the operation, the slab may hold pages of another format.
"""

from dataclasses import dataclass
from typing import Literal

Tier = Literal["device", "host"]


@dataclass(frozen=True, slots=True)
class Copy:
    """A sequence writes to a shared page: from now on it has its own copy."""

    kv_format: str
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Load:
    """A block was hit on the host: load it to the device. The host keeps its copy."""

    kv_format: str
    host_page: int
    page: int


@dataclass(frozen=True, slots=True)
class Demote:
    """A block moves from the device to the host."""

    kv_format: str
    page: int
    host_page: int


@dataclass(frozen=True, slots=True)
class Move:
    """Compaction within one tier. Nothing refers to the source any more; its bytes stay there until overwritten."""

    kv_format: str
    source_page: int
    target_page: int
    tier: Tier = "device"


@dataclass(frozen=True, slots=True)
class Zero:
    """Zero these pages, which contained purged blocks."""

    tier: Tier
    kv_format: str
    pages: tuple[int, ...]


Operation = Copy | Load | Demote | Move | Zero
