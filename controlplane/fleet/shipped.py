"""The model that comes with Luminet, and what the quality suite found of it: so that it is served without measuring."""

from typing import TYPE_CHECKING

from controlplane.settings.env import CHECKOUT

if TYPE_CHECKING:
    from tenants.actor import Actor

DEMO_MODEL = CHECKOUT / "engine_agent" / "demo" / "model"
DEMO_MODEL_NAME = "luminet-demo"


def shipped_quality_ensure(*, actor: "Actor") -> None:
    """Stored once. Whatever is measured or let through later counts, because it is newer."""
    from controlplane.fleet.quality_results import (
        quality_ensure,  # the supervisor wants the names alone, without Django
    )

    quality_ensure(actor=actor, model=DEMO_MODEL_NAME, path=DEMO_MODEL / "quality-torch-cpu.json")
