"""Runs a part of Luminet under a wall clock that a test can set: `python -m tests.usage.clock FILE MODULE [ARGUMENT…]`.

FILE holds by how many seconds the clock is ahead at this moment. What is steady stays so, as when somebody sets a
machine's clock.
"""

import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path


def clock_patch(file: Path) -> None:
    right = time.time
    time.time = _ahead(file, right)


def _ahead(file: Path, right: Callable[[], float]) -> Callable[[], float]:
    def now() -> float:
        try:
            return right() + float(file.read_text() or 0)
        except (OSError, ValueError):  # it is being written
            return right()

    return now


if __name__ == "__main__":
    clock_patch(Path(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
