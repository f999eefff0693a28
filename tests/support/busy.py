"""Every core busy with something else, as on a machine that has too much to do."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_SECONDS = 600  # a process that is left behind ends by itself
BURN = f"import time\nend = time.monotonic() + {LONGEST_SECONDS}\nwhile time.monotonic() < end: pass"


@contextmanager
def cores_busy() -> Iterator[None]:
    """One process on each core that computes without a pause."""
    burning = [subprocess.Popen((sys.executable, "-c", BURN)) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
        for process in burning:
            process.wait()
