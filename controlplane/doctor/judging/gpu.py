"""Whether engines can compute with what this machine has."""

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.doctor.finding import Finding, broken, note, ok, warning

OLDEST_CAPABILITY = (7, 0)  # below it Triton compiles nothing
GIB = 2**30
CUDA_TORCH = "pip install --force-reinstall torch with an index that has the CUDA build: docs/operations.md says how"


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    capability: tuple[int, int]
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class GpuSeen:
    driver: str | None  # nvidia-smi's word; None: there is none
    has_device_files: bool  # /dev/nvidia0
    torch: str
    torch_cuda: str | None  # None: a build for CPUs
    why_no_cuda: str | None  # torch's own words
    devices: Sequence[Device] = ()
    architectures: Sequence[str] = ()  # that torch was compiled for: sm_90 …
    triton: str | None = None


def gpus(seen: GpuSeen) -> list[Finding]:
    if seen.driver is None and not seen.has_device_files and not seen.devices:
        return [note("gpu", "No NVIDIA GPU here: engines compute on the CPU, with the kernels for it")]
    if seen.torch_cuda is None:
        told = f"There is an NVIDIA GPU (driver {seen.driver or 'unknown'}), and PyTorch {seen.torch} is built for CPUs"
        return [warning("gpu", told, CUDA_TORCH)]
    if not seen.devices:
        why = f": {seen.why_no_cuda}" if seen.why_no_cuda else ""
        told = f"PyTorch {seen.torch} for CUDA {seen.torch_cuda} sees no GPU with driver {seen.driver or 'none'}{why}"
        do = "nvidia-smi must work here: install a driver for that CUDA or newer; in a container, docker run --gpus all"
        return [broken("gpu", told, do)]
    return [finding for one in seen.devices for finding in _device(one, seen)]


def _device(one: Device, seen: GpuSeen) -> list[Finding]:
    capability = f"{one.capability[0]}.{one.capability[1]}"
    if one.capability < OLDEST_CAPABILITY:
        do = "use a GPU of Volta or newer (capability 7.0)"
        return [broken("gpu", f"{one.name} has capability {capability}: the kernels cannot be compiled for it", do)]
    found = [
        ok("gpu", f"{one.name}, capability {capability}, driver {seen.driver or 'unknown'}, CUDA {seen.torch_cuda}")
    ]
    if seen.architectures and not _is_covered(one, seen.architectures):
        told = f"PyTorch {seen.torch} was not compiled for {one.name} (capability {capability})"
        found = [broken("gpu", told, CUDA_TORCH)]
    if seen.triton is None:
        found.append(broken("triton", "Triton is not installed: kernels for a GPU need it", "pip install triton"))
    free = f"{one.free_bytes / GIB:.1f} of {one.total_bytes / GIB:.1f} GiB free"
    if one.free_bytes < 0.1 * one.total_bytes:
        found.append(note("gpu-memory", f"{one.name}: {free}. An engine that runs has taken it, or somebody else"))
    else:
        found.append(ok("gpu-memory", f"{one.name}: {free}"))
    return found


def _is_covered(one: Device, architectures: Sequence[str]) -> bool:
    """Code for 8.0 also runs on 8.6; code for none of this generation does not run at all, unless PTX is there."""
    major, minor = one.capability
    numbers = [int(name.partition("_")[2].rstrip("abcdef")) for name in architectures if name.startswith("sm_")]
    is_built = any(number // 10 == major and number % 10 <= minor for number in numbers)
    return is_built or any(name.startswith("compute_") for name in architectures)


def native(status: str, *, has_gpu: bool) -> Finding:
    """`status` as kernels.native.library tells it: "C, by gcc …", or "torch: why"."""
    compiler, _, why = status.partition(": ")
    if status.startswith("C, "):
        return ok("native", f"The kernels for the CPU are compiled ({status})")
    if has_gpu:
        return note("native", f"The kernels for the CPU are not compiled ({why or compiler}); the GPU's are used")
    told = (
        f"The kernels for the CPU are not compiled ({why or compiler}): PyTorch does their work, several times slower"
    )
    return warning(
        "native", told, "install a C compiler (Debian: sudo apt-get install gcc libc6-dev), and restart engines"
    )
