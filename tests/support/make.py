"""What make would do, asked from a test that may itself run under make."""

import os
import subprocess
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def without_make(environ: dict[str, str]) -> dict[str, str]:
    """make hands its own flags and level down to every make below it; a test wants one that starts fresh."""
    return {name: value for name, value in environ.items() if not name.startswith(("MAKE", "MFLAGS"))}


@cache
def planned(target: str) -> tuple[str, ...]:
    """Return the commands of a target without running one. make takes half a second for that, so it is asked once."""
    command = ["make", "--dry-run", *target.split()]
    env = without_make(dict(os.environ))
    done = subprocess.run(command, cwd=CHECKOUT, env=env, capture_output=True, text=True, check=True)
    return tuple(done.stdout.splitlines())
