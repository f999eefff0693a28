"""The accelerator of an engine's tensors, as reported to the control plane."""

from collections.abc import Mapping
from typing import Any

import torch


def accelerator(device: torch.device) -> Mapping[str, Any] | None:
    """Return the accelerator's name and memory, or None for a CPU."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    return {"name": properties.name, "memory_bytes": properties.total_memory}
