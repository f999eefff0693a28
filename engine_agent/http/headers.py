"""The headers that every response carries, and the contract's names of those that report cache hits."""

import re
import uuid

REQUEST_ID = "x-request-id"
COUNTED = (
    "x-luminet-cache-hit",
    "x-luminet-cached-tokens",
    "x-luminet-prompt-tokens",
    "x-luminet-kv-dtype",
    "x-luminet-namespace",
    "x-luminet-policy-revision",
    "x-luminet-miss-reason",
    "x-luminet-agent",
)
RATE_LIMITS = tuple(
    f"x-ratelimit-{quantity}-{unit}" for unit in ("requests", "tokens") for quantity in ("limit", "remaining", "reset")
)
CORS = (
    ("access-control-allow-origin", "*"),  # a response needs a key in a header, which no browser sends by itself
    ("access-control-expose-headers", ", ".join((*COUNTED, *RATE_LIMITS, REQUEST_ID, "retry-after"))),
)
PREFLIGHT = (
    ("access-control-allow-methods", "GET, POST, OPTIONS"),
    ("access-control-allow-headers", "*, authorization"),  # the star does not include this one
    ("access-control-max-age", "86400"),
)
EVENT_STREAM = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
)
_ACCEPTABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def request_id_accept(offered: str | None) -> str:
    """Return the client's id if it is harmless in logs and headers, otherwise a new one."""
    return offered if offered and _ACCEPTABLE.fullmatch(offered) else uuid.uuid4().hex
