"""Prometheus' own judge of rules and of metrics."""

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.servers.debian import run_quietly
from tests.servers.programs import PROMTOOL

SECONDS: Final = 60.0
FOUND_SOMETHING: Final = 3


def promtool() -> Path:
    return PROMTOOL.found()[0]


def judged(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What it says of files in that folder."""
    environ = {**os.environ, "GOGC": "400"}  # its garbage collector takes a fifth of the time, and memory is there
    return run_quietly([str(promtool()), *arguments], env=environ, timeout=SECONDS, cwd=cwd)


def complaints(exposition: str) -> list[str]:
    """What it finds wrong with metrics as a process tells them, a line each. Raises ValueError of what is none."""
    command = [str(promtool()), "check", "metrics"]
    done = subprocess.run(command, input=exposition, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode not in (0, FOUND_SOMETHING):
        raise ValueError(done.stderr)
    return (done.stdout + done.stderr).splitlines()
