"""Server-sent events as OpenAI's clients read them."""

from typing import Any

from engine_agent.http.client import as_json

DONE = b"data: [DONE]\n\n"


def event(value: Any) -> bytes:
    return b"data: %b\n\n" % as_json(value)  # JSON has no raw line breaks, so it is one line
