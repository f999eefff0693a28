"""What a gateway holds at this moment: the tables of its snapshot, and whether it takes requests."""

from dataclasses import dataclass, field

from engine_agent.gateway.tables import Tables, tables_empty


@dataclass(slots=True)
class Held:
    """Tables are replaced as a whole, so that whoever reads them once has one state of the world."""

    tables: Tables = field(default_factory=tables_empty)
    has_snapshot: bool = False
    is_draining: bool = False
    is_revoked: bool = False  # an operator took this gateway out of the fleet: it serves nobody any more

    def hold(self, tables: Tables) -> None:
        self.tables, self.has_snapshot = tables, True
