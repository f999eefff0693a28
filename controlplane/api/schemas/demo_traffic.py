"""Bodies for the demo's traffic and its switch."""

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field

from controlplane.api.schemas.base import Given, Taken, example

WHEN = "2026-11-22T12:00:00Z"


class DemoTrafficShown(Given):
    model_config = ConfigDict(
        json_schema_extra=example(
            is_here=True, state="sends", is_on=True, changed_by="operator@luminet.example (ci)", changed_at=WHEN
        )
    )

    is_here: bool = Field(description="Whether there is a process that sends it, heard of within the last 15 s.")
    state: Literal["sends", "paused", "waits"] | None = Field(
        description="What it does; `waits`: for the gateway, or for a key. Null where it is not here."
    )
    is_on: bool = Field(description="Whether it is wanted. It is, until somebody says otherwise.")
    changed_by: str | None = Field(description="Who last said so; null: nobody has.")
    changed_at: datetime | None


class DemoTrafficPut(Taken):
    model_config = ConfigDict(json_schema_extra=example(is_on=False))

    is_on: bool = Field(description="Whether it is wanted from now on, over restarts too.")
