"""The model that comes with Luminet and its quality results, so that it can be served without measuring it."""

from typing import TYPE_CHECKING

from controlplane.settings.env import CHECKOUT

if TYPE_CHECKING:
    from tenants.actor import Actor

DEMO_MODEL = CHECKOUT / "engine_agent" / "demo" / "model"
DEMO_MODEL_NAME = "luminet-demo"


def shipped_quality_ensure(*, actor: "Actor") -> None:
    """Store the shipped results once. Later measurements and overrides are newer, so they count instead."""
    from controlplane.fleet.quality_results import (
        quality_ensure,  # the supervisor imports only the names, without Django
    )

    quality_ensure(actor=actor, model=DEMO_MODEL_NAME, path=DEMO_MODEL / "quality-torch-cpu.json")
