"""Structured logs: one event a line, as JSON for machines or as text for people, always with the request id.

The secrets of one-time links are removed from the finished line, because Django's own loggers write paths, too.
"""

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final

from controlplane.common.one_time_links import without_secrets
from controlplane.common.request_id import request_id_current

# The attributes of every LogRecord; any other attribute came in through `extra=` and is logged.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_NOISE = frozenset({"data", "sent_at", "request"})  # Celery's two; Django's request, whose repr is its full address


def log_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the record's extras in their order, and its request id."""
    extras = {key: value for key, value in vars(record).items() if key not in _STANDARD | _NOISE}
    request_id = request_id_current()
    if request_id is not None:
        extras.setdefault("request_id", request_id)
    return extras


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **log_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return without_secrets(json.dumps(line, default=str, ensure_ascii=False))


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={value}" for key, value in log_fields(record).items())
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        line = _harmless(f"{at} {record.levelname.lower():<7} {record.getMessage()}{fields}")
        return without_secrets(f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line)


def _harmless(line: str) -> str:
    """Escape control characters, so that input can forge no log line and send no escape sequence to a terminal."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda match: repr(match[0])[1:-1], line)


class SuspiciousRequests(logging.Filter):
    """Logs at most one short line a minute for each kind of request that Django refuses as suspicious, such as a
    foreign host: anyone can send them at any rate."""

    PREFIX: Final = "django.security."
    SECONDS: Final = 60.0
    LONGEST: Final = 200

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._lock = clock, Lock()
        self._quiet_until: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if not (record.name.startswith(self.PREFIX) and record.exc_info):
            return True
        with self._lock:
            now = self._clock()
            if now < self._quiet_until.get(record.name, now):
                self._left_out[record.name] += 1
                return False
            self._quiet_until[record.name] = now + self.SECONDS
            self._shorten(record, left_out=self._left_out.pop(record.name, 0))
        return True

    def _shorten(self, record: logging.LogRecord, *, left_out: int) -> None:
        record.msg, record.args = record.getMessage()[: self.LONGEST], ()
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        record.left_out = left_out


def logging_config(*, log_format: str, level: str) -> dict[str, Any]:
    formatter = JsonFormatter if log_format == "json" else TextFormatter
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": formatter}},
        "filters": {"suspicious": {"()": SuspiciousRequests}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["suspicious"]}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Django's own handlers would print every line twice; our middleware logs each request once.
            "django": {"handlers": [], "level": level, "propagate": True},
            "django.server": {"handlers": [], "level": level, "propagate": True},
            "django.request": {"level": "ERROR"},
            "uvicorn": {"handlers": [], "level": "WARNING", "propagate": True},
            "celery": {"level": "WARNING" if level == "INFO" else level},
            "kombu": {"level": "WARNING"},
            "asyncio": {"level": "WARNING"},
        },
    }
