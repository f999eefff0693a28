"""Check whether engines can compute with this machine's hardware."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from controlplane.doctor import data_plane
from controlplane.doctor.context import Context
from controlplane.doctor.finding import Finding, NotExamined, broken, note, ok, warning

PATIENCE = 1.2  # loading PyTorch takes longer than other checks
OLDEST_CAPABILITY = (7, 0)  # Triton does not compile for older ones
GIB = 2**30
CUDA_TORCH = "pip install --force-reinstall torch with an index that has the CUDA build: docs/operations.md says how"
Machine = Mapping[str, Any]  # as engine_agent.tools.examining reports it, and each of its devices


def gpu(context: Context) -> Iterator[Finding]:
    if not context.place.has_engine:
        is_expected = context.place.kind != "processes"
        raise NotExamined("no engine here (PyTorch is not installed)" if is_expected else "no engine here")
    machine = data_plane.facts("machine", seconds=context.place.seconds * PATIENCE)
    yield from gpu_findings(machine)
    yield native_finding(machine["native"], has_gpu=bool(machine["devices"]))


def gpu_findings(machine: Machine) -> list[Finding]:
    driver, torch, devices = machine["driver"], machine["torch"], machine["devices"]
    if driver is None and not machine["has_device_files"] and not devices:
        return [note("gpu", "No NVIDIA GPU here: engines compute on the CPU, with the kernels for it")]
    if machine["torch_cuda"] is None:
        says = f"There is an NVIDIA GPU (driver {driver or 'unknown'}), and PyTorch {torch} is built for CPUs"
        return [warning("gpu", says, CUDA_TORCH)]
    if not devices:
        why = f": {machine['why_no_cuda']}" if machine["why_no_cuda"] else ""
        says = f"PyTorch {torch} for CUDA {machine['torch_cuda']} sees no GPU with driver {driver or 'none'}{why}"
        do = "nvidia-smi must work here: install a driver for that CUDA or newer; in a container, docker run --gpus all"
        return [broken("gpu", says, do)]
    return [finding for device in devices for finding in _device(device, machine)]


def _device(device: Machine, machine: Machine) -> Iterator[Finding]:
    name, capability = device["name"], "{}.{}".format(*device["capability"])
    if tuple(device["capability"]) < OLDEST_CAPABILITY:
        says = f"{name} has capability {capability}: the kernels cannot be compiled for it"
        yield broken("gpu", says, "use a GPU of Volta or newer (capability 7.0)")
        return
    if machine["architectures"] and not _is_covered(device["capability"], machine["architectures"]):
        says = f"PyTorch {machine['torch']} was not compiled for {name} (capability {capability})"
        yield broken("gpu", says, CUDA_TORCH)
    else:
        driver = machine["driver"] or "unknown"
        yield ok("gpu", f"{name}, capability {capability}, driver {driver}, CUDA {machine['torch_cuda']}")
    if machine["triton"] is None:
        yield broken("triton", "Triton is not installed: kernels for a GPU need it", "pip install triton")
    says = f"{name}: {device['free_bytes'] / GIB:.1f} of {device['total_bytes'] / GIB:.1f} GiB free"
    if device["free_bytes"] < 0.1 * device["total_bytes"]:
        yield note("gpu-memory", f"{says}. An engine that runs has taken it, or somebody else")
    else:
        yield ok("gpu-memory", says)


def _is_covered(capability: Sequence[int], architectures: Sequence[str]) -> bool:
    """Return whether torch has code for the GPU: code for 8.0 runs on 8.6, for another generation only as PTX."""
    major, minor = capability
    numbers = [int(name.partition("_")[2].rstrip("abcdef")) for name in architectures if name.startswith("sm_")]
    is_built = any(number // 10 == major and number % 10 <= minor for number in numbers)
    return is_built or any(name.startswith("compute_") for name in architectures)


def native_finding(status: str, *, has_gpu: bool) -> Finding:
    """Evaluate the CPU kernels. `status`: as kernels.native.library reports it: "C, by gcc …", or "torch: why"."""
    if status.startswith("C, "):
        return ok("native", f"The kernels for the CPU are compiled ({status})")
    compiler, _, why = status.partition(": ")
    says = f"The kernels for the CPU are not compiled ({why or compiler})"
    if has_gpu:
        return note("native", f"{says}; the GPU's are used")
    do = "install a C compiler (Debian: sudo apt-get install gcc libc6-dev), and restart engines"
    return warning("native", f"{says}: PyTorch does their work, several times slower", do)
