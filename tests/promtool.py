"""Prometheus' own judge of rules: $LUMINET_PROMTOOL, PATH, or out of Debian's package, unpacked into a cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.debian import Package, cached_or_fetched, run_quietly

VARIABLE: Final = "LUMINET_PROMTOOL"
REMEDY: Final = f"install prometheus (Debian: apt-get install prometheus) or set {VARIABLE}=/path"
INSIDE: Final = "root/usr/bin/promtool"
SECONDS: Final = 60.0
FOUND_SOMETHING: Final = 3


class PromtoolUnavailable(RuntimeError):
    """None here. The message is one sentence: what was tried, and what to do."""


PACKAGE: Final = Package("promtool", ("prometheus",), 150_000_000, REMEDY, PromtoolUnavailable, is_alone=True)


def promtool() -> Path:
    found = os.environ.get(VARIABLE) or shutil.which("promtool")
    if found:
        return Path(found)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    cache = Path(base, "luminet", "promtool").expanduser().absolute()
    try:
        return cached_or_fetched(PACKAGE, cache, works=_works, proven=_proven) / INSIDE
    except OSError as error:
        raise PromtoolUnavailable(f"no promtool on PATH, and the cache is unusable ({error}): {REMEDY}") from error


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


def _works(copy: Path) -> bool:
    try:
        return run_quietly([str(copy / INSIDE), "--version"], env=os.environ, timeout=SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _proven(copy: Path) -> str:
    if not _works(copy):
        raise PromtoolUnavailable(f"Debian's promtool was unpacked but does not start: {REMEDY}")
    return run_quietly([str(copy / INSIDE), "--version"], env=os.environ, timeout=SECONDS).stdout.partition("\n")[0]
