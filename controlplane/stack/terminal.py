"""The stack's terminal output: every line begins with its service's name, in colour on a terminal."""

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import TextIO

COLOURS = {"postgres": 34, "redis": 31, "web": 36, "worker": 33, "beat": 35, "luminet": 32}
WIDTH = 9


class Terminal:
    def __init__(self, stream: TextIO = sys.stdout, environ: Mapping[str, str] = os.environ) -> None:
        self._stream = stream
        self._colourful = stream.isatty() and "NO_COLOR" not in environ

    def say(self, name: str, line: str) -> None:
        label = f"{name:<{WIDTH}}"
        if self._colourful:
            label = f"\x1b[{COLOURS.get(name, 39)}m{label}\x1b[0m"
        # The terminal may be gone (a closed window is an I/O error); the log files have every line.
        with contextlib.suppress(OSError, ValueError):
            print(f"{label} {line}", file=self._stream, flush=True)

    def bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._colourful else text
