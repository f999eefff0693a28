"""What a run was measured on: commit, machine, Python and packages. What cannot be read is None, never guessed."""

import os
import platform
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from engine_agent.tools.savings.machine import cpu_model, usable_cores

ROOT = Path(__file__).resolve().parents[2]
COMPARED_WITH = ("litellm", "numpy", "transformers", "triton")  # what pyproject.toml does not name but figures rest on


@dataclass(frozen=True, slots=True)
class Commit:
    revision: str | None
    is_dirty: bool | None

    @property
    def short(self) -> str:
        return self.revision[:10] if self.revision else "nocommit"


@dataclass(frozen=True, slots=True)
class Machine:
    cpu: str
    cores: int
    memory_gib: float
    os: str
    kernel: str
    gpu: str | None
    python: str
    load_1min: float  # before the run; a busy machine explains a wide spread


def commit_of(root: Path = ROOT) -> Commit:
    revision = _output("git", "-C", str(root), "rev-parse", "--verify", "--quiet", "HEAD")
    status = _output("git", "-C", str(root), "status", "--porcelain")
    return Commit(revision or None, None if status is None else bool(status))


def this_machine() -> Machine:
    return Machine(
        cpu=cpu_model(),
        cores=usable_cores(),
        memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        os=_os_name(),
        kernel=platform.release(),
        gpu=_gpu_name(),
        python=platform.python_version(),
        load_1min=round(os.getloadavg()[0], 2),
    )


def package_versions(root: Path = ROOT) -> dict[str, str]:
    """Versions of the installed packages among those pyproject.toml names and those we measure beside."""
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {re.split(r"[^A-Za-z0-9._-]", requirement)[0] for extra in extras.values() for requirement in extra}
    versions = {name: _version(name) for name in sorted(named | set(COMPARED_WITH))}
    return {name: version for name, version in versions.items() if version}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)


def _gpu_name() -> str | None:
    """Each with its driver: `NVIDIA H200, 580.95.05`."""
    names = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return names.replace("\n", "; ") if names else None


def _output(*command: str) -> str | None:
    """What a command prints, or None if it is missing, fails or hangs."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout.strip()
