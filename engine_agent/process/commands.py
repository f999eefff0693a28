"""Helpers of the data plane's commands: option errors, one-line problems, event loop and file limit.

Standard library only.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import NoReturn

MOST_FILES = 65_536  # that a process requests if the system sets no limit


class Parser(argparse.ArgumentParser):
    """An argument parser that exits with 1 on wrong options, as every other command does."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


def run(
    command: Callable[[], int], *problems: type[Exception], tell: Callable[[str], None] = lambda reason: None
) -> int:
    """Run a command and return its exit status: 1 if it raised one of `problems` or an OSError.

    The problem is printed in one line and passed to `tell`.
    """
    try:
        return command()
    except BrokenPipeError:
        raise  # the reader closed the pipe, which is not an error
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
    except ModuleNotFoundError:  # without uvloop, use the standard library's loop
        return None
    return uvloop.new_event_loop


def open_files_raise() -> int:
    """Raise the limit of open files, which include connections, as far as allowed. Return the limit."""
    import resource

    limit, unlimited = resource.RLIMIT_NOFILE, resource.RLIM_INFINITY
    soft, hard = resource.getrlimit(limit)
    desired_files = MOST_FILES if hard == unlimited else min(hard, MOST_FILES)
    if soft != unlimited and soft < desired_files:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (desired_files, hard))
    current_limit = resource.getrlimit(limit)[0]
    return MOST_FILES if current_limit == unlimited else current_limit
