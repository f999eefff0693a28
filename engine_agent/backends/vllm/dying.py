"""The reason why vLLM's processes end. vLLM writes it to their logs only, and refers their parent to the output above.
A handler that vLLM's own logging loads stores the first fatal error in a file, too.

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
    """A log handler that stores the first error, which is the cause; later ones follow from it."""

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
            return  # another process was first, or the file cannot be written: the log has the error


def said_of(error: BaseException) -> str:
    """Return the error's first non-empty line, with its type unless that is generic."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first_line = lines[0] if lines else ""
    kind = type(error).__name__
    if isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in MEMORY):
        return f"out of memory: {first_line or kind}"
    return (
        first_line
        if first_line and kind in ("RuntimeError", "ValueError")
        else f"{kind}: {first_line}".removesuffix(": ")
    )


class Listening:
    """Collects the cause, from before the start of vLLM's processes until their end."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="luminet-vllm-")
        self._why = Path(self._folder.name) / "why"
        self._handler = FirstFatal(str(self._why))
        logging.getLogger("vllm").addHandler(self._handler)  # for forked processes
        self._is_configured = CONFIG_VARIABLE not in os.environ  # an operator's own configuration is left alone
        if self._is_configured:
            config = Path(self._folder.name) / "logging.json"
            level = os.environ.get("VLLM_LOGGING_LEVEL", "WARNING")
            config.write_text(json.dumps(logging_config(level, self._why)), encoding="utf-8")
            os.environ[CONFIG_VARIABLE] = str(config)

    def cause(self, exit_codes: Iterable[int | None], default: str) -> str:
        """Return a process's fatal error, or the signal that ended one, or `default`."""
        try:
            fatal_error = self._why.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            fatal_error = ""
        killed = [f"one of its processes {ended_by(code)}" for code in exit_codes if code is not None and code < 0]
        return fatal_error or next(iter(killed), default)

    def close(self) -> None:
        logging.getLogger("vllm").removeHandler(self._handler)
        if self._is_configured:
            os.environ.pop(CONFIG_VARIABLE, None)
        self._folder.cleanup()


def exit_codes_in(message: str) -> list[int]:
    """Return the exit codes in vLLM's message about failed processes."""
    return [int(code) for code in re.findall(r"'[^']*': (-?\d+)", message)]


def logging_config(level: str, reason_path: Path) -> dict[str, Any]:
    """Return vLLM's own logging configuration, plus our handler."""
    stream = os.environ.get("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(processName)s pid=%(process)d %(levelname)s %(asctime)s %(message)s"}},
        "handlers": {
            "told": {"class": "logging.StreamHandler", "formatter": "plain", "level": level, "stream": stream},
            "first": {"class": f"{__name__}.{FirstFatal.__name__}", "path": str(reason_path)},
        },
        "loggers": {"vllm": {"handlers": ["told", "first"], "level": level, "propagate": False}},
    }
