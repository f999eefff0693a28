"""What an engine's tensors are on, as the control plane is told."""

from collections.abc import Mapping
from typing import Any

import torch


def accelerator(device: torch.device) -> Mapping[str, Any] | None:
    """None: a CPU."""
    if device.type != "cuda":
        return None
    found = torch.cuda.get_device_properties(device)
    return {"name": found.name, "memory_bytes": found.total_memory}
