"""What the data plane's commands have in common: how a mistyped one ends, how a problem is told, what a process gets.

Standard library only.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import NoReturn

MOST_FILES = 65_536  # that a process asks for, where nothing bounds it


class Parser(argparse.ArgumentParser):
    """Ends with 1 on what it cannot understand, as every other command does."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


def run(
    command: Callable[[], int], *problems: type[Exception], tell: Callable[[str], None] = lambda reason: None
) -> int:
    """Its exit status; 1, after one line, where it raised one of these, or the system refused something. `tell` hears
    that as well.
    """
    try:
        return command()
    except BrokenPipeError:
        raise  # whoever reads us has seen enough: no matter of ours
    except OSError as problem:
        reason = f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem)
    except problems as problem:
        reason = str(problem)
    tell(reason)
    print(f"luminet: {reason}", file=sys.stderr)
    return 1


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ModuleNotFoundError:  # where there is none, the standard library's does
        return None
    return uvloop.new_event_loop


def open_files_raise() -> int:
    """A connection is a file: as many as this process may have. Returns how many that are."""
    import resource

    limit, unlimited = resource.RLIMIT_NOFILE, resource.RLIM_INFINITY
    soft, hard = resource.getrlimit(limit)
    wanted = MOST_FILES if hard == unlimited else min(hard, MOST_FILES)
    if soft != unlimited and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (wanted, hard))
    now = resource.getrlimit(limit)[0]
    return MOST_FILES if now == unlimited else now
