"""Settings of a sidecar, the same for engines and gateways."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SidecarConfig:
    home: Path  # folder of the credentials, the store and the spool
    look_seconds: float = 0.5  # longest time between two polls of the holder's state
    about_seconds: float = 10.0  # longest time between two polls of its description (`about`)
    pins_seconds: float = 5.0  # longest time between two polls for pins that lack content
    stop_seconds: float = 3.0  # for unfinished work at shutdown
