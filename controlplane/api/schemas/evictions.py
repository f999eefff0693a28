"""Bodies for evictions between namespaces."""

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field

from controlplane.api.schemas.base import Given, example

AS_OF = "2026-11-22T12:34:56.789Z"
TIMES = {"window_seconds": 86_400, "from": "2026-11-21T12:34:00Z", "to": AS_OF}
PAIR = {
    "victim": "acme/chat",
    "by": "globex/default",
    "cause": "pressure",
    "blocks": 1_234,
    "bytes": 40_435_712,
    "last_at": AS_OF,
}
LOST = {"blocks": 1_234, "bytes": 40_435_712}


class EvictionPair(Given):
    """What requests of one namespace took from another, or from itself. What went to a lower tier is not lost."""

    model_config = ConfigDict(json_schema_extra=example(**PAIR))

    victim: str = Field(description="As `org/namespace`; `others`: those that engines no longer tell apart.")
    by: str
    cause: Literal["pressure", "quota"] = Field(
        description="`pressure`: the pool was full. `quota`: the victim had reached its own limit."
    )
    blocks: int
    bytes: int
    last_at: datetime


class Evicted(Given):
    blocks: int
    bytes: int


class FleetEvictions(Given):
    model_config = ConfigDict(json_schema_extra=example(**TIMES, pairs=[PAIR]))

    window_seconds: int = Field(validation_alias="seconds")
    from_: datetime = Field(validation_alias="start", serialization_alias="from")
    to: datetime = Field(validation_alias="end")
    pairs: list[EvictionPair] = Field(description="Those of which one took most from another, 50 at most.")


class NamespaceEvictions(Given):
    model_config = ConfigDict(
        json_schema_extra=example(**TIMES, by_own_traffic=LOST, by_fleet_pressure=LOST, evicted_by=[PAIR], evicts=[])
    )

    window_seconds: int = Field(validation_alias="seconds")
    from_: datetime = Field(validation_alias="start", serialization_alias="from")
    to: datetime = Field(validation_alias="end")
    by_own_traffic: Evicted
    by_fleet_pressure: Evicted
    evicted_by: list[EvictionPair] | None = Field(
        description="Who took most from it, 50 at most. Null unless an operator asks."
    )
    evicts: list[EvictionPair] | None = Field(
        description="From whom else it took most, 50 at most. Null unless an operator asks."
    )
