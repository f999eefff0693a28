"""Log lines of the data plane, as text for people or JSON for programs. They contain no prompts and no keys."""

import json
import logging
import re
from datetime import UTC, datetime

_UNSHOWABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        # One line for each record, whatever a client sent: no forged lines, no escape sequences for the operator's
        # terminal.
        line = f"{at} {record.levelname.lower():<7} {_shown(record.getMessage())}"
        if not record.exc_info:
            return line
        # An error's message may come from a client and contain line breaks, so all lines after the first are indented.
        trace = self.formatException(record.exc_info).split("\n")
        return "\n".join([line, *(f"  {_shown(trace_line)}" for trace_line in trace)])


def _shown(text: str) -> str:
    return _UNSHOWABLE.sub(lambda match: repr(match[0])[1:-1], text)


def log_to_stderr(*, is_json: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if is_json else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("uvicorn", "asyncio", "celery", "kombu"):
        logging.getLogger(name).setLevel(logging.WARNING)
