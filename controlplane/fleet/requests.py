"""HTTP for the agent API, without a framework: read requests within limits, and send answers."""

import json
import re
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from engine_agent.contracts.wire import MOST_BATCH_BYTES

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

JSON = "application/json"
LENGTH_DIGITS = 18
GZIP = 16 + zlib.MAX_WBITS  # zlib's number for gzip
SMALL_BYTES = 64 * 1024  # the limit of every request but reports
CHALLENGE: Mapping[str, str] = {"www-authenticate": "Bearer"}
Members = Mapping[str, type | tuple[type, ...]]
_NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str = "ok"


class Refused(Exception):
    """A request that is answered with an error. `code` is for programs, `why` only for our log."""

    def __init__(
        self, status: int, code: str, message: str, *, headers: Mapping[str, str] = _NO_HEADERS, why: str = ""
    ) -> None:
        self.status, self.code, self.message, self.headers, self.why = status, code, message, headers, why
        super().__init__(message)

    def answer(self) -> Answer:
        body = {"error": {"code": self.code, "message": self.message}}
        return Answer(self.status, json.dumps(body).encode(), self.headers, self.code)


def json_answer(status: int, value: Any) -> Answer:
    return Answer(status, json.dumps(value, separators=(",", ":")).encode())


def header(scope: Scope, name: bytes) -> str:
    """Return the first header of that name, or an empty text."""
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return next((value.decode("latin-1") for key, value in headers if key == name), "")


def bearer(scope: Scope) -> str:
    scheme, _, token = header(scope, b"authorization").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Refused(401, "unknown_token", "Authorization: give the agent's token, as Bearer …", headers=CHALLENGE)
    return token.strip()


def query_value(scope: Scope, name: str) -> str:
    query: bytes = scope.get("query_string", b"")
    return parse_qs(query.decode("latin-1")).get(name, [""])[0]


async def body_read(scope: Scope, receive: Receive, *, limit: int = MOST_BATCH_BYTES) -> bytes:
    """Return the whole body, or raise Refused if it is, or is announced to be, larger than the limit.

    A body announced as too large is not read at all. The connection limits the time (controlplane/web/edge.py).
    """
    announced = header(scope, b"content-length")
    if announced.isdecimal() and (len(announced) > LENGTH_DIGITS or int(announced) > limit):
        raise _too_large(limit)
    pieces, size, has_more = list[bytes](), 0, True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "cut_off", "the body ended early")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            raise _too_large(limit)
        has_more = message.get("more_body", False)
    return b"".join(pieces)


def body_unpacked(scope: Scope, body: bytes, *, limit: int = MOST_BATCH_BYTES) -> bytes:
    """Return the uncompressed body. No more than the limit is ever unpacked."""
    encoding = header(scope, b"content-encoding").strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise Refused(415, "encoding", "the body may come in gzip, or as it is", headers={"accept-encoding": "gzip"})
    unpacking = zlib.decompressobj(wbits=GZIP)
    try:
        unpacked = unpacking.decompress(body, limit + 1)
    except zlib.error:
        raise Refused(400, "malformed", "the body is not in gzip") from None
    if len(unpacked) > limit:
        raise _too_large(limit)
    if not unpacking.eof or unpacking.unused_data:
        raise Refused(400, "malformed", "the body is no whole gzip, or more than one")
    return unpacked


def _too_large(limit: int) -> Refused:
    return Refused(413, "too_large", f"the body is larger than the {limit} bytes taken here")


def object_read(body: bytes, members: Members) -> dict[str, Any]:
    """Return a JSON object that has only these members, each of its type. A member that may be null may be left out."""
    try:
        fields = json.loads(storable(body).decode())
    except (ValueError, RecursionError):
        raise Refused(400, "malformed", "the body is not JSON in UTF-8, or nested too deeply") from None
    if not isinstance(fields, dict):
        raise Refused(400, "malformed", "the body must be an object")
    for name in sorted(fields.keys() - members.keys()):
        raise Refused(400, "malformed", f"{ascii(name[:80])[1:-1]}: is not a member we know")
    for name, kinds in members.items():
        if not isinstance(fields.get(name), kinds):
            raise Refused(400, "malformed", f"{name}: is missing or of another type")
    return {name: fields.get(name) for name in members}


# Escapes that no text or JSON column can store: the character NUL, and one half of a surrogate pair without the other.
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"(?P<good>" + _PAIR + rb")|(?P<bad>" + _HALF + rb"|\\u0000)|\\.", re.DOTALL)
_REPLACEMENT = rb"\ufffd"


def storable(body: bytes) -> bytes:
    """Replace escapes that the database cannot store, so that a strange text does not block an agent's reports."""
    if _SUSPECT.search(body) is None:
        return body
    return _ESCAPE.sub(lambda match: _REPLACEMENT if match["bad"] else match[0], body)


async def send_answer(scope: Scope, send: Send, answer: Answer) -> None:
    headers = [
        (b"content-length", str(len(answer.body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *((name.encode(), value.encode()) for name, value in answer.headers.items()),
    ]
    if answer.body:
        headers.append((b"content-type", JSON.encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})
