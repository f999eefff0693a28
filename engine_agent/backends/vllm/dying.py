"""Why vLLM's processes end. vLLM says it in their logs alone, and tells who started them that something is to be seen
above; here the first of its fatal errors is kept in a file as well, by a handler that vLLM's own logging loads.

Standard library only: vLLM imports this in each of its processes.
"""

import json
import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engine_agent.process.last_words import ended_by

CONFIG_VARIABLE = "VLLM_LOGGING_CONFIG_PATH"
FATAL = (
    "EngineCore failed to start",
    "EngineCore encountered a fatal error",
    "WorkerProc failed",
    "WorkerProc hit an exception",
)
MEMORY = ("memoryerror", "out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory")


class FirstFatal(logging.Handler):
    """What comes first is the cause; what others say then follows from it."""

    def __init__(self, path: str) -> None:
        super().__init__(logging.ERROR)
        self._path = Path(path)

    def emit(self, record: logging.LogRecord) -> None:
        error = (record.exc_info or (None, None))[1]
        if error is None or not str(record.msg).startswith(FATAL):
            return
        try:
            with self._path.open("x", encoding="utf-8") as file:
                file.write(said_of(error))
        except OSError:
            return  # somebody was first, or nothing can be written: the log has it


def said_of(error: BaseException) -> str:
    """Its first line that says something, and its kind where that is no plain one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else ""
    kind = type(error).__name__
    if isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in MEMORY):
        return f"out of memory: {said or kind}"
    return said if said and kind in ("RuntimeError", "ValueError") else f"{kind}: {said}".removesuffix(": ")


class Listening:
    """From before vLLM's processes are started, as long as they live."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="luminet-vllm-")
        self._why = Path(self._folder.name) / "why"
        self._handler = FirstFatal(str(self._why))
        logging.getLogger("vllm").addHandler(self._handler)  # of processes that are forked, and not made anew
        self._is_configured = CONFIG_VARIABLE not in os.environ  # an operator's own is left alone
        if self._is_configured:
            config = Path(self._folder.name) / "logging.json"
            level = os.environ.get("VLLM_LOGGING_LEVEL", "WARNING")
            config.write_text(json.dumps(logging_config(level, self._why)), encoding="utf-8")
            os.environ[CONFIG_VARIABLE] = str(config)

    def cause(self, exit_codes: Iterable[int | None], otherwise: str) -> str:
        """What a process said; else the signal that ended one; else what is known already."""
        try:
            said = self._why.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            said = ""
        killed = [f"one of its processes {ended_by(code)}" for code in exit_codes if code is not None and code < 0]
        return said or next(iter(killed), otherwise)

    def close(self) -> None:
        logging.getLogger("vllm").removeHandler(self._handler)
        if self._is_configured:
            os.environ.pop(CONFIG_VARIABLE, None)
        self._folder.cleanup()


def exit_codes_in(told: str) -> list[int]:
    """Of vLLM's processes, in the sentence that says which of them failed."""
    return [int(code) for code in re.findall(r"'[^']*': (-?\d+)", told)]


def logging_config(level: str, why: Path) -> dict[str, Any]:
    """vLLM's own way of writing, and our handler beside it."""
    stream = os.environ.get("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(processName)s pid=%(process)d %(levelname)s %(asctime)s %(message)s"}},
        "handlers": {
            "told": {"class": "logging.StreamHandler", "formatter": "plain", "level": level, "stream": stream},
            "first": {"class": f"{__name__}.{FirstFatal.__name__}", "path": str(why)},
        },
        "loggers": {"vllm": {"handlers": ["told", "first"], "level": level, "propagate": False}},
    }
