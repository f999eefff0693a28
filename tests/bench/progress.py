"""Where a run is, while it runs."""

import shutil
from typing import TextIO

from tests.bench.results import RowResult


class Progress:
    """On stderr: one updating line on a terminal, otherwise a line per figure."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_live = stream, stream.isatty()

    def step(self, row: str, figure: str, k: int, n: int) -> None:
        if self._is_live:
            text = f"{row} · {figure} · " + (f"repetition {k}/{n}" if k else "warming up")
            self._write(f"\r\x1b[2K{text[: shutil.get_terminal_size().columns - 1]}")
        elif k == 0:
            self._write(f"{row} · {figure} · {n} repetitions\n")

    def done(self, result: RowResult) -> None:
        """A row is over. Its failure is shown at once and in full; the table only has its last line."""
        ended = f"{result.key} · {result.status} · {result.seconds:.1f} s\n"
        self._write(("\r\x1b[2K" if self._is_live else "") + ended + (result.error.traceback if result.error else ""))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
