"""How a sidecar runs, whatever it stands beside. Read once into a frozen value."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SidecarConfig:
    home: Path  # its credentials, its store and its spool
    look_seconds: float = 0.5  # between two looks at the holder, at most
    about_seconds: float = 10.0  # between two looks at what it is
    pins_seconds: float = 5.0  # between two looks at which pins' content it lacks
    stop_seconds: float = 3.0  # for what is in hand, at the end
