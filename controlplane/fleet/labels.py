"""Labels of agents, by which rollouts select the agents of a step. Pure."""

from typing import Annotated

from pydantic import Field, StringConstraints

MOST_LABELS = 32
LABEL_PATTERN = r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$"
VALUE_PATTERN = r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$"

LabelName = Annotated[str, StringConstraints(pattern=LABEL_PATTERN)]
LabelValue = Annotated[str, StringConstraints(pattern=VALUE_PATTERN)]
Labels = Annotated[dict[LabelName, LabelValue], Field(max_length=MOST_LABELS)]
