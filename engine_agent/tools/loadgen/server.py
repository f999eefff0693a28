"""A server under test, and the form of requests it accepts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from engine_agent.tools.loadgen.workloads import Asked, as_text


@dataclass(frozen=True, slots=True)
class Form:
    """A form of requests. `find_server` finds one that the server accepts."""

    is_chat: bool = False
    takes_ids: bool = True
    ignores_eos: bool = True
    tokens_per_word: float = 1.0  # if it takes text


@dataclass(frozen=True, slots=True)
class Server:
    """A server's address and the fields of every request to it."""

    url: str  # …/v1
    model: str
    key: str | None = field(default=None, repr=False)
    form: Form = Form()
    timeout_seconds: float = 600.0
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def body(self, request: Asked) -> dict[str, Any]:
        form = self.form
        text = request.tokens if form.takes_ids else as_text(request.tokens, form.tokens_per_word)
        prompt: dict[str, Any] = {"messages": [{"role": "user", "content": text}]} if form.is_chat else {"prompt": text}
        body = {"model": self.model, **prompt, "max_tokens": request.output_tokens, "temperature": 0, "stream": True}
        body["stream_options"] = {"include_usage": True}
        if form.ignores_eos:
            body["ignore_eos"] = True
        return {**body, **self.extra}

    @property
    def path(self) -> str:
        return f"{self.url}/chat/completions" if self.form.is_chat else f"{self.url}/completions"

    @property
    def all_headers(self) -> dict[str, str]:
        return {**({"authorization": f"Bearer {self.key}"} if self.key else {}), **self.headers}


def checked_url(text: str) -> str:
    """Return an address such as `http://host:port/v1`, without a final slash. Raises ValueError."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{text[:100]!r} is no address such as http://127.0.0.1:8101/v1")
    return text.rstrip("/")
