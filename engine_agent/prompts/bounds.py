"""Limits for a chat template, and the start of a process that renders within them."""

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

# glibc settings that keep the memory of a long chat for the next: returning it each time cost as much as rendering.
_KEEPING = {"MALLOC_TRIM_THRESHOLD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(64 << 20)}
ROOT = Path(__file__).parents[2]  # a process imports this package from there
START_SECONDS = 60.0  # a process may take that long to start on a very busy machine
_WHOSE = "the model's chat template takes more than"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one process: memory for all it does, seconds for each request."""

    cpu_seconds: float = 2.0  # a chat of a million tokens takes some 50 ms
    memory_bytes: int = 1 << 30  # address space: the longest body in every form that it passes through
    wall_seconds: float = 20.0  # applies to a process that gets no processor time

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
    """A running process, and the channels to it."""

    process: "subprocess.Popen[bytes]"
    connection: socket.socket
    exchange: Exchange


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Remove our own settings, which include tokens: a template that escapes the sandbox could read them."""
    return {name: value for name, value in environment.items() if not name.startswith("LUMINET_")}


def process_start(bounds: Bounds) -> Started:
    """Raise OSError if no process starts."""
    exchange = exchange_open()
    parent_end, child_end = socket.socketpair()
    try:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "engine_agent.prompts.child"),
                *map(str, (bounds.memory_bytes, bounds.cpu_seconds, exchange.fd)),
            ],
            stdin=child_end.fileno(),
            stdout=subprocess.DEVNULL,
            pass_fds=[exchange.fd],
            cwd=ROOT,
            env={**_without_secrets(os.environ), **_KEEPING},
        )
    except BaseException:
        exchange.close()
        parent_end.close()
        raise
    finally:
        child_end.close()
    return Started(process, parent_end, exchange)
