"""A test request to the gateway, sent as any client would, and its answer: headers, usage, time to the first token.

The address is the one the gateway reported to this control plane, never one from a form. Redirects are not followed.
This module does not use the database.
"""

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

USER_AGENT: Final = "luminet-test-request"
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0  # for the whole answer, however slowly it streams
KEY_SECONDS: Final = 10.0  # time for a new key to reach the gateway
BETWEEN_LOOKS: Final = 0.1
MOST_BYTES: Final = 1 << 20
MOST_TOKENS: Final = 4  # of an answer, because only the prompt matters
PREFIX: Final = "x-luminet-"
MOST_WORDS: Final = 300
Messages = list[dict[str, str]]


class NotAnswered(Exception):
    """The gateway gave no usable answer. The message is for people and has no address."""


class CutShort(NotAnswered):
    """The answer began, but its stream ended with an error event."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer. `headers` are Luminet's, in order; `first_token_ms` is measured on this side."""

    headers: tuple[tuple[str, str], ...]
    hit: str
    prompt_tokens: int
    cached_tokens: int
    usage_prompt_tokens: int
    usage_cached_tokens: int
    first_token_ms: float
    whole_ms: float

    @property
    def miss_reason(self) -> str:
        return self.header("miss-reason")

    @property
    def agent(self) -> str:
        return self.header("agent")

    def header(self, name: str) -> str:
        return dict(self.headers).get(f"{PREFIX}{name}", "")


@dataclass(frozen=True, slots=True)
class Gateway:
    address: str
    secret: str
    answer_seconds: float = ANSWER_SECONDS

    def model(self) -> str:
        """Return the first model served to this key. Retry until a new key has reached the gateway."""
        end = time.monotonic() + KEY_SECONDS
        while True:
            status, body = self._get("/v1/models")
            if status != http.client.UNAUTHORIZED:
                return _first_model(status, body)
            if time.monotonic() >= end:
                raise NotAnswered(f"The gateway refuses this key: it did not learn of it within {KEY_SECONDS:.0f} s.")
            time.sleep(BETWEEN_LOOKS)

    def chat(self, model: str, messages: Messages, *, namespace: str = "", **options: Any) -> Answer:
        body = {
            "model": model,
            "messages": messages,
            "max_tokens": MOST_TOKENS,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **options,
        }
        namespace_header = {"x-luminet-namespace": namespace} if namespace else {}
        began, connection = time.monotonic(), self._connection()
        try:
            headers = {**self._headers(), "content-type": "application/json", **namespace_header}
            connection.request("POST", f"{self._path}/v1/chat/completions", json.dumps(body).encode(), headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise NotAnswered(_refusal(response.status, response.read(MOST_BYTES)))
            return _read(response, began, self.answer_seconds)
        except (OSError, http.client.HTTPException) as error:
            raise NotAnswered(f"The gateway does not answer: {_words(error)}.") from error
        finally:
            connection.close()

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            connection.request("GET", f"{self._path}{path}", headers=self._headers())
            response = connection.getresponse()
            return response.status, response.read(MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise NotAnswered(f"The gateway does not answer: {_words(error)}.") from error
        finally:
            connection.close()

    @property
    def _path(self) -> str:
        return urlsplit(self.address).path.rstrip("/")

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secret}", "user-agent": USER_AGENT}

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.address)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self.answer_seconds, context=context)
        return http.client.HTTPConnection(host, port, timeout=self.answer_seconds)


def _read(response: http.client.HTTPResponse, began: float, most_seconds: float) -> Answer:
    first_token_at, usage, size = None, dict[str, Any](), 0
    while line := response.readline(MOST_BYTES):
        size += len(line)
        if time.monotonic() - began > most_seconds or size > MOST_BYTES:
            raise NotAnswered(f"The answer was not there within {most_seconds:.0f} s.")
        event = _event(line)
        if first_token_at is None and _has_text(event):
            first_token_at = time.monotonic()
        usage = event.get("usage") or usage
    ended = time.monotonic()
    cache_headers = tuple(
        (name.lower(), value) for name, value in response.getheaders() if name.lower().startswith(PREFIX)
    )
    return _answer(cache_headers, usage, ((first_token_at or ended) - began) * 1000, (ended - began) * 1000)


def _answer(headers: tuple[tuple[str, str], ...], usage: Mapping[str, Any], first_ms: float, all_ms: float) -> Answer:
    headers_by_name = dict(headers)
    try:
        return Answer(
            headers=headers,
            hit=headers_by_name[f"{PREFIX}cache-hit"],
            prompt_tokens=int(headers_by_name[f"{PREFIX}prompt-tokens"]),
            cached_tokens=int(headers_by_name[f"{PREFIX}cached-tokens"]),
            usage_prompt_tokens=int(usage["prompt_tokens"]),
            usage_cached_tokens=int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
            first_token_ms=first_ms,
            whole_ms=all_ms,
        )
    except (LookupError, TypeError, ValueError, AttributeError):
        raise NotAnswered("The answer came without the headers or the usage that a gateway of ours sends.") from None


def _event(line: bytes) -> dict[str, Any]:
    if not line.startswith(b"data:") or b"[DONE]" in line:
        return {}
    try:
        event = json.loads(line[5:])
    except ValueError:
        raise NotAnswered("The gateway sent what is no JSON.") from None
    if not isinstance(event, dict):
        return {}
    if "error" in event:
        raise CutShort(f"The gateway broke off: {_message(event)}")
    return event


def _has_text(event: Mapping[str, Any]) -> bool:
    choices = event.get("choices")
    delta = choices[0].get("delta") if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    return isinstance(delta, dict) and bool(delta.get("content"))


def _first_model(status: int, body: bytes) -> str:
    if status != http.client.OK:
        raise NotAnswered(_refusal(status, body))
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        raise NotAnswered("No engine serves a model right now.") from None


def _refusal(status: int, body: bytes) -> str:
    try:
        document = json.loads(body)
    except ValueError:
        document = {}
    return f"The gateway answers {status}: {_message(document)}"


def _message(document: Any) -> str:
    try:
        return str(document["error"]["message"])[:MOST_WORDS]
    except (LookupError, TypeError):
        return "and does not say why."


def _words(error: BaseException) -> str:
    return "it took too long" if isinstance(error, TimeoutError) else (getattr(error, "strerror", None) or "it hung up")
