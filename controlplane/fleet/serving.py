"""The snapshot that an agent fetches, ready to be sent. `rollouts`, above this app, makes it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DesiredSnapshot:
    """The encoded desired state of one agent."""

    hash: str
    generation: int
    body: bytes = field(repr=False)  # from snapshot_encode


class SnapshotNotPlanned(Exception):
    """No state is planned for this agent yet. The agent asks again in a moment."""

    def __init__(self, agent: str) -> None:
        super().__init__(f"no snapshot is planned for {agent} yet")
