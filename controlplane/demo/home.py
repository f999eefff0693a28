"""The description of a demo by its caller: its files, its backends and the members that join."""

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
    file: Path  # addresses and secrets, for programs
    proofs: Path
    gateway: str | None = None  # the gateway's address, if there is one
    backends: tuple[str, ...] = ()
    joiners: tuple[Joiner, ...] = ()
