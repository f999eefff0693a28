"""nginx: PATH's, or out of Debian's package, unpacked into a cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.debian import Package, cached_or_fetched, run_quietly

REMEDY: Final = "install nginx (Debian: apt-get install nginx)"
INSIDE: Final = "root/usr/sbin/nginx"
SECONDS: Final = 60.0


class NginxUnavailable(RuntimeError):
    """None here. The message is one sentence: what was tried, and what to do."""


PACKAGE: Final = Package("nginx", ("nginx",), 5_000_000, REMEDY, NginxUnavailable, is_alone=True)


def nginx() -> Path:
    if found := shutil.which("nginx"):
        return Path(found)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    cache = Path(base, "luminet", "nginx").expanduser().absolute()
    try:
        return cached_or_fetched(PACKAGE, cache, works=_works, proven=_proven) / INSIDE
    except OSError as error:
        raise NginxUnavailable(f"no nginx on PATH, and the cache is unusable ({error}): {REMEDY}") from error


def _works(copy: Path) -> bool:
    try:
        return run_quietly([str(copy / INSIDE), "-v"], env=os.environ, timeout=SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _proven(copy: Path) -> str:
    if not _works(copy):
        raise NginxUnavailable(f"Debian's nginx was unpacked but does not start: {REMEDY}")
    return "nginx"
