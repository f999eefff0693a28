"""What agents fetch: the snapshot they are to hold, ready to be sent. Who makes it is above this app."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DesiredSnapshot:
    """What one agent is to hold, as it goes out."""

    hash: str
    generation: int
    body: bytes = field(repr=False)  # snapshot_encode of it


class SnapshotNotPlanned(Exception):
    """Nothing has been decided for this agent yet: it asks again in a moment."""

    def __init__(self, agent: str) -> None:
        super().__init__(f"no snapshot is planned for {agent} yet")
