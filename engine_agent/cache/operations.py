"""What the engine must do to the bytes, in the order given, before its next step. The cache itself touches none.

Where a page lies follows from its id and the operation's own `kv_format` (`pool.Arena.offset(page, kv_format)`): by the
time the engine gets here, the slab may hold pages of another format.
"""

from dataclasses import dataclass
from typing import Literal

Tier = Literal["device", "host"]


@dataclass(frozen=True, slots=True)
class Copy:
    """A sequence writes to a page it shares: from here on it has a copy of its own."""

    kv_format: str
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Load:
    """A block was found on the host: bring it to the device. The host keeps its copy."""

    kv_format: str
    host_page: int
    page: int


@dataclass(frozen=True, slots=True)
class Demote:
    """A block leaves the device and lives on on the host."""

    kv_format: str
    page: int
    host_page: int


@dataclass(frozen=True, slots=True)
class Move:
    """Compaction within one tier. Nobody refers to the source any more; its bytes stay there until overwritten."""

    kv_format: str
    source_page: int
    target_page: int
    tier: Tier = "device"


@dataclass(frozen=True, slots=True)
class Zero:
    """These pages held what was purged."""

    tier: Tier
    kv_format: str
    pages: tuple[int, ...]


Operation = Copy | Load | Demote | Move | Zero
