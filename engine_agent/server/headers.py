"""The headers every response carries, and those that say what the cache was worth. Their names are the contract's."""

import re
import uuid

from engine_agent.journal_records import Opened

REQUEST_ID = "x-request-id"
_COUNTED = (
    "x-luminet-cache-hit",
    "x-luminet-cached-tokens",
    "x-luminet-prompt-tokens",
    "x-luminet-kv-dtype",
    "x-luminet-namespace",
    "x-luminet-policy-revision",
    "x-luminet-miss-reason",
    "x-luminet-agent",
)
CORS = (
    ("access-control-allow-origin", "*"),  # what it guards is a key in a header, which no browser sends by itself
    ("access-control-expose-headers", ", ".join((*_COUNTED, REQUEST_ID, "retry-after"))),
)
PREFLIGHT = (
    ("access-control-allow-methods", "GET, POST, OPTIONS"),
    ("access-control-allow-headers", "*, authorization"),  # the star does not stand for this one
    ("access-control-max-age", "86400"),
)
EVENT_STREAM = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
)
_ACCEPTABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def counted_headers(opened: Opened, agent_id: str) -> list[tuple[str, str]]:
    """Of an admitted request: the journal's record, in headers."""
    values = (
        percent(opened.cached_tokens, opened.prompt_tokens),
        str(opened.cached_tokens),
        str(opened.prompt_tokens),
        opened.kv_dtype,
        opened.namespace,
        str(opened.policy_revision),
        opened.miss_reason,
        agent_id,
    )
    return list(zip(_COUNTED, values, strict=True))


def percent(part: int, whole: int) -> str:
    """With one decimal, rounded down: in integers, or 0.29 · 100 would be 28.9."""
    tenths = part * 1_000 // whole if whole else 0
    return f"{tenths // 10}.{tenths % 10}"


def request_id_accept(offered: str | None) -> str:
    """The client's own id where it is harmless in logs and headers, else a fresh one."""
    return offered if offered and _ACCEPTABLE.fullmatch(offered) else uuid.uuid4().hex
