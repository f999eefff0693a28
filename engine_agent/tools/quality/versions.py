"""The environment of a run: backend, device, versions."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

PACKAGES = ("luminet", "torch", "triton", "safetensors", "tokenizers")


def backend_of(device: torch.device) -> str:
    """Return which implementation of the ops runs on the device."""
    return "triton-cuda" if device.type == "cuda" else "torch-cpu"


def device_name(device: torch.device) -> str:
    """Return the GPU's name, or the CPU's capabilities and cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    version_by_name = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            version_by_name[name] = version(name)
        except PackageNotFoundError:
            continue
    return version_by_name
