"""How far a replay has come: one line on a terminal, gone when it ends; nothing where nobody watches."""

import time
from typing import TextIO

REDRAW_SECONDS = 0.1
CLEAR = "\r\x1b[2K"


class Progress:
    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream, self._total = stream, max(1, total)
        self._is_live = stream.isatty()
        self._began = self._drawn = time.perf_counter()

    def show(self, what: str, done: int) -> None:
        """`done` of the total, over all replays together."""
        now = time.perf_counter()
        if not self._is_live or now - self._drawn < REDRAW_SECONDS or not done:
            return
        self._drawn = now
        left = (now - self._began) * (self._total - done) / done
        self._write(f"{CLEAR}{what} · {100 * done / self._total:.0f} % · {left:,.0f} s left")

    def clear(self) -> None:
        if self._is_live:
            self._write(CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
