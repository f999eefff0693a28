"""How much a chat template may take, and the start of a process that renders within that."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine_agent.prompts.errors import RequestError, TemplateExhausted, TemplateUnavailable
from engine_agent.prompts.exchange import Exchange, exchange_open
from engine_agent.prompts.templates import FIELD

# glibc's: what a long chat needed is kept for the next. Giving it back each time cost as much as rendering.
_KEEPING = {"MALLOC_TRIM_THRESHOLD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(64 << 20)}
ROOT = Path(__file__).parents[2]  # where a process finds this package
START_SECONDS = 60.0  # of a process, on a machine that is very busy
_WHOSE = "the model's chat template takes more than"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one process. Its memory is for all it does, the seconds are for each request."""

    cpu_seconds: float = 2.0  # a chat of a million tokens takes some 50 ms
    memory_bytes: int = 1 << 30  # of address space: the longest body in every form that it takes on its way
    wall_seconds: float = 20.0  # for a process that gets no processor time

    def out_of_memory(self) -> TemplateExhausted:
        return TemplateExhausted(FIELD, f"{_WHOSE} {self.memory_bytes >> 20:,} MiB of memory for them")

    def out_of_time(self) -> TemplateExhausted:
        return TemplateExhausted(FIELD, f"{_WHOSE} {self.cpu_seconds:g} s of processor time for them")

    def ended(self, status: int) -> RequestError:
        """Return why a process ended before it answered, by its exit status."""
        if status == -signal.SIGPROF:
            return self.out_of_time()
        return TemplateUnavailable("", f"the process that rendered it ended with status {status}")


@dataclass(frozen=True, slots=True)
class Started:
    """A process, and what it is spoken to by."""

    process: "subprocess.Popen[bytes]"
    connection: socket.socket
    exchange: Exchange


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out our own settings, tokens among them: a template that got out of the sandbox would read them."""
    return {name: value for name, value in environment.items() if not name.startswith("LUMINET_")}


def process_start(bounds: Bounds) -> Started:
    """Raises OSError."""
    exchange = exchange_open()
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "engine_agent.prompts.child"),
                *map(str, (bounds.memory_bytes, bounds.cpu_seconds, exchange.fd)),
            ],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            pass_fds=[exchange.fd],
            cwd=ROOT,
            env={**_without_secrets(os.environ), **_KEEPING},
        )
    except BaseException:
        exchange.close()
        ours.close()
        raise
    finally:
        theirs.close()
    return Started(process, ours, exchange)
