"""The requested form of a rollout: all agents at once, or a few first, under guards. Pure."""

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)
MOST_STEPS = 20
EVERYBODY = 100
Label = Annotated[str, StringConstraints(min_length=1, max_length=63)]
Share = Annotated[int, Field(ge=1, le=EVERYBODY)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class LabelStep(BaseModel):
    """The agents that have all of these labels."""

    model_config = STRICT

    labels: Annotated[dict[Label, Label], Field(min_length=1, max_length=8)] = Field(
        description="Labels with their values; an agent has to have all of them."
    )


Step = Share | LabelStep


class Guards(BaseModel):
    """What is compared, while a step bakes, between agents that are reached and agents that are not. Null: not."""

    model_config = STRICT

    hit_ratio_drop: Ratio | None = Field(default=0.05, description="How much lower the hit ratio may be.")
    ttft_p95_rise: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = Field(
        default=0.5, description="By which share of the others' the p95 of the time to the first token may be longer."
    )
    error_ratio: Ratio | None = Field(default=0.02, description="How much more of the requests may fail.")
    integrity: bool = Field(default=True, description="Whether reached engines check themselves at the end of a bake.")
    min_requests: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=20, description="With fewer on either side nothing is decided: at the end of a bake it pauses."
    )

    @property
    def compares(self) -> bool:
        return (self.hit_ratio_drop, self.ttft_p95_rise, self.error_ratio) != (None, None, None)


class RolloutSpec(BaseModel):
    """How a revision is brought to the agents. Left out: to all of them at once."""

    model_config = ConfigDict(
        **STRICT,
        json_schema_extra={"examples": [{"strategy": "canary", "steps": [10, 50, 100], "bake_seconds": 60}]},
    )

    strategy: Literal["all", "canary"] = Field(default="all", description="All agents at once, or in steps.")
    steps: Annotated[list[Step], Field(max_length=MOST_STEPS)] | None = Field(
        default=None,
        description="Of a canary: shares of the engines in percent, or labels; the last is 100. Default: 10, 50, 100.",
    )
    bake_seconds: Annotated[int, Field(ge=1, le=604_800)] = Field(
        default=60, description="How long each step but the last is watched once its agents have applied it."
    )
    guards: Guards = Field(default=Guards(), description="What sends it back.")

    @model_validator(mode="after")
    def _steps_lead_to_everybody(self) -> "RolloutSpec":
        if self.strategy == "all" and self.steps not in (None, [EVERYBODY]):
            raise ValueError("steps: only a canary has steps; at once there is one, [100]")
        if self.strategy == "canary":
            _steps_check([10, 50, EVERYBODY] if self.steps is None else self.steps)
        return self

    @property
    def stages(self) -> tuple[Step, ...]:
        """Return the steps, with the defaults filled in."""
        if self.strategy == "all":
            return (EVERYBODY,)
        return (10, 50, EVERYBODY) if self.steps is None else tuple(self.steps)

    def stored(self) -> list[Any]:
        return [step if isinstance(step, int) else step.model_dump() for step in self.stages]


def _steps_check(steps: list[Step]) -> None:
    if not steps or steps[-1] != EVERYBODY:
        raise ValueError("steps: the last has to be 100")
    shares = [share for share in steps if isinstance(share, int)]
    if any(later <= earlier for earlier, later in pairwise(shares)):
        raise ValueError(f"steps: each share has to be larger than the one before, not {shares}")


ALL_AT_ONCE = RolloutSpec()


def steps_read(stored: list[Any]) -> tuple[Step, ...]:
    """Read the stored steps of a rollout."""
    return tuple(step if isinstance(step, int) else LabelStep.model_validate(step) for step in stored)
