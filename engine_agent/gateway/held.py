"""The gateway's current state: the tables of its snapshot, and whether it takes requests."""

from dataclasses import dataclass, field

from engine_agent.gateway.tables import Tables, tables_empty


@dataclass(slots=True)
class Held:
    """The current state. Tables are replaced as a whole, so that a request that reads them once sees one snapshot."""

    tables: Tables = field(default_factory=tables_empty)
    has_snapshot: bool = False
    is_draining: bool = False
    is_revoked: bool = False  # an operator removed this gateway from the fleet: it serves no requests

    def hold(self, tables: Tables) -> None:
        self.tables, self.has_snapshot = tables, True
