"""Where a demo is made: its files, what its fleet is, and who joins it. Whoever starts it says so."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Joiner:
    """An agent or gateway of the demo's fleet."""

    name: str
    kind: str
    home: Path
    join_token: Path


@dataclass(frozen=True, slots=True)
class DemoHome:
    file: Path  # how to get in, for programs
    proofs: Path
    gateway: str | None = None  # its address, where one runs
    backends: tuple[str, ...] = ()
    joiners: tuple[Joiner, ...] = ()
