"""An engine as far as purges go: it holds a state, computes blocks under the epoch it holds, and drops those of others.

It knows nothing of what was lost when it dies: another boot begins with no state and no blocks.
"""

from dataclasses import dataclass, field

from engine_agent.contracts.protocol import Snapshot
from tests.fleet_simulation.states import NAMESPACES

BLOCK_BYTES = 1000

Place = tuple[str, int]  # namespace, epoch


@dataclass(frozen=True, slots=True)
class Proof:
    """That nothing of this namespace before this epoch is left in this boot of the engine."""

    namespace: str
    epoch: int
    blocks: int
    boot: str
    number: int  # from 1 in each boot


@dataclass(slots=True)
class Engine:
    boot: str
    held: Snapshot | None = None
    is_draining: bool = False
    blocks: dict[Place, int] = field(default_factory=dict)
    proofs: list[Proof] = field(default_factory=list)

    def serve(self, namespace: str, blocks: int) -> Place | None:
        """A request of this namespace, which leaves that many blocks; where they lie, or None when it is refused."""
        epoch = None if self.held is None else epoch_of(self.held, namespace)
        if epoch is None:
            return None
        place = (namespace, epoch)
        self.blocks[place] = self.blocks.get(place, 0) + blocks
        return place

    def obey(self, snapshot: Snapshot) -> list[Proof]:
        """Hold that state; what it purged of what was there. Blocks of epochs that are not held any more are gone."""
        before, self.held = self.held, snapshot
        purged = (
            [] if before is None else [one for one in NAMESPACES if epoch_of(before, one) != epoch_of(snapshot, one)]
        )
        made = []
        for namespace in purged:
            gone = [place for place in self.blocks if place[0] == namespace]
            made.append(self._proof(namespace, snapshot, sum(self.blocks.pop(place) for place in gone)))
        return made

    def proofs_after(self, boot: str, number: int) -> list[Proof]:
        """Those behind that number of this boot; all, where the number is of another."""
        return [one for one in self.proofs if boot != self.boot or one.number > number]

    def _proof(self, namespace: str, snapshot: Snapshot, blocks: int) -> Proof:
        proof = Proof(namespace, epoch_of(snapshot, namespace) or 0, blocks, self.boot, len(self.proofs) + 1)
        self.proofs.append(proof)
        return proof


def epoch_of(snapshot: Snapshot, namespace: str) -> int | None:
    entry = snapshot.entries.get(f"ns/{namespace}")
    return None if entry is None else int(entry["epoch"])
