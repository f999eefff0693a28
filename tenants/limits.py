"""Limits of organisations. Operators set them; services and gateways enforce them. No I/O."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Rate = Annotated[int, Field(ge=1, le=1_000_000_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]


class Limits(BaseModel):
    """null means no limit; a field left out has its default."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    requests_per_minute: Rate | None = Field(
        default=None, description="Inference requests a minute, over all gateways."
    )
    tokens_per_minute: Rate | None = Field(default=None, description="Prompt and generated tokens per minute.")
    concurrent_requests: Rate | None = Field(default=None, description="Inference requests in flight at once.")
    max_namespaces: Count = Field(default=5_000, description="Namespaces it may have.")
    max_keys: Count = Field(default=1_000, description="API keys it may have.")
    max_members: Count = Field(default=1_000, description="Members it may have, invited ones included.")
    max_pins: Count = Field(default=1_000, description="Pins it may have over all namespaces.")


def limits_of(stored: dict[str, Any]) -> Limits:
    return Limits.model_validate(stored)
