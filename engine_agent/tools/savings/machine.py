"""A description of the measured machine, without which figures mean nothing."""

import os
import platform
import re
from pathlib import Path


def described() -> str:
    """Return for example `Intel(R) Xeon(R) …, 2 cores, Linux x86_64, Python 3.11.7, load 0.3`."""
    cores = usable_cores()
    parts = [cpu_model(), f"{cores} core{'s' * (cores > 1)}", f"{platform.system()} {platform.machine()}"]
    return ", ".join([*parts, f"Python {platform.python_version()}", f"load {os.getloadavg()[0]:.1f}"])


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_model() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else platform.processor() or platform.machine()
