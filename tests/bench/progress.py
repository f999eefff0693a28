"""Where a run is, while it runs, and about how long it will take."""

import shutil
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

from engine_agent.tools.report import format_duration
from tests.bench.registry import Row
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
        noisy = " · noisy" if (now := result.circumstances) and now.noise and now.noise.is_noisy else ""
        ended = f"{result.key} · {result.status} · {result.seconds:.1f} s{noisy}\n"
        self._write(("\r\x1b[2K" if self._is_live else "") + ended + (result.error.traceback if result.error else ""))

    def say(self, line: str) -> None:
        self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Outlook:
    """How long the rows to come will take, by what they took before. A row nobody measured before counts as none."""

    def __init__(self, rows: Sequence[Row], known: Mapping[str, float]) -> None:
        self._keys, self._known = [row.key for row in rows], known
        self._began = time.monotonic()

    def before_all(self) -> str:
        new = [key for key in self._keys if key not in self._known]
        rows = f"{len(self._keys)} row{'' if len(self._keys) == 1 else 's'}"
        if len(new) == len(self._keys):
            return f"{rows}; how long that takes nobody knows yet: none was measured before"
        left = format_duration(self._left(0))
        beside = f", and whatever {', '.join(new)} take" if new else ""
        return f"{rows}: about {left} as last time{beside}; an installation of vLLM or LiteLLM, once, comes on top"

    def before(self, place: int) -> str:
        """Of the row at this place, counted from 0."""
        key, gone = self._keys[place], format_duration(time.monotonic() - self._began)
        alone = f"takes about {format_duration(self._known[key])}" if key in self._known else "was not measured before"
        left = f", about {format_duration(self._left(place))} to go" if self._left(place) else ""
        all_of_it = f"{gone} gone{left}"
        return f"[{place + 1} of {len(self._keys)}] {key} {alone} · {all_of_it}"

    def _left(self, place: int) -> float:
        return sum(self._known.get(key, 0.0) for key in self._keys[place:])
