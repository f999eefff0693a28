"""One kept-alive connection to a control plane's REST API, with the standard library. It repeats only safe requests."""

import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

from controlplane.client.depth import is_too_deep
from controlplane.client.errors import ClientError, Refused
from controlplane.client.shapes import Unexpected, shaped
from controlplane.common.version import version

ROOT = "/api/v1"
TRIES = 3
LONGEST_WAIT_SECONDS = 60.0
PAGE = 200
IDLE_SECONDS = 2.0  # after this the server may be about to close; requests that cannot be repeated get a new connection
A_PAGE = {"items": list, "next_cursor": (str, type(None))}
CSV, PROBLEM = "text/csv", "application/problem+json"
NONE: Mapping[str, str] = {}
BROKEN = (http.client.HTTPException, OSError, UnicodeError)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def revision(self) -> str:
        """Return the ETag, to be sent back as If-Match."""
        return self.headers.get("etag", "")


@dataclass(slots=True)
class Rest:
    """The connection. `url`: the control plane's base URL, without /api."""

    url: str
    token: str = field(repr=False)
    timeout: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    _connection: http.client.HTTPConnection | None = None
    _used_at: float = 0.0

    def get(self, path: str, **query: str | int | None) -> Answer:
        return self.ask("GET", _with_query(path, query), repeatable=True)

    def post(self, path: str, body: Any, *, repeatable: bool = False, headers: Mapping[str, str] = NONE) -> Answer:
        """Send a POST with retries: a `repeatable` one changes nothing, any other gets an Idempotency-Key here."""
        key = {} if repeatable else {"Idempotency-Key": str(uuid4())}
        return self.ask("POST", path, body, repeatable=True, headers={**key, **headers})

    def put(self, path: str, body: Any, *, headers: Mapping[str, str] = NONE) -> Answer:
        key = {"Idempotency-Key": str(uuid4())}
        return self.ask("PUT", path, body, repeatable=True, headers={**key, **headers})

    def text(self, path: str, **query: str | int | None) -> str:
        """Return a table as CSV."""
        answer = self.ask("GET", _with_query(path, query), repeatable=True, headers={"Accept": f"{CSV}, {PROBLEM}"})
        body: str = shaped(answer.body, str)
        return body

    def delete(self, path: str, *, headers: Mapping[str, str] = NONE) -> Answer:
        return self.ask("DELETE", path, headers=headers)

    def pages(self, path: str, **query: str | int | None) -> Iterator[Any]:
        """Yield every item of a list, from all of its pages."""
        cursor: str | None = None
        while True:
            page = shaped(self.get(path, **query, limit=PAGE, cursor=cursor).body, A_PAGE)
            yield from page["items"]
            if page["next_cursor"] is None:
                return
            if page["next_cursor"] == cursor:
                raise Unexpected("a page leads to itself")
            cursor = page["next_cursor"]

    def ask(
        self, method: str, path: str, body: Any = None, *, repeatable: bool = False, headers: Mapping[str, str] = NONE
    ) -> Answer:
        """Send a request and return its answer. Raise Refused if it is a problem."""
        content = None if body is None else _bytes(body)
        for tries_left in reversed(range(TRIES if repeatable else 1)):
            try:
                answer = self._once(method, path, content, headers)
            except BROKEN as error:
                self.close()
                if not tries_left:
                    raise ClientError(f"{self.url} does not answer: {_reason(error)}") from None
                self.sleep(0.5 * (TRIES - tries_left))
                continue
            if not tries_left or answer.status not in (429, 503):
                return _accepted(answer, self.url)
            self.sleep(_wait(answer))
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _once(self, method: str, path: str, content: bytes | None, extra_headers: Mapping[str, str]) -> Answer:
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": f"application/json, {PROBLEM}",
            "User-Agent": f"luminet/{version()}",
            **({} if content is None else {"Content-Type": "application/json"}),
            **extra_headers,
        }
        if time.monotonic() - self._used_at > IDLE_SECONDS:
            self.close()
        self._connection = self._connection or self._open()
        self._connection.request(method, urlsplit(self.url).path.rstrip("/") + ROOT + path, content, headers)
        response = self._connection.getresponse()
        text = response.read()
        self._used_at = time.monotonic()
        response_headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, response_headers, _json(text, response_headers.get("content-type", "")))

    def _open(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=self.timeout, context=context)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=self.timeout)


def segment(text: str) -> str:
    """Return the text quoted as a path segment, whatever was typed, even lone surrogates."""
    return quote(text, safe="", errors="surrogatepass")


def if_match(answer: Answer) -> dict[str, str]:
    """Return the header that lets a change succeed only if nothing has changed since this answer."""
    return {"If-Match": answer.revision}


def _bytes(body: Any) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        raise ClientError("there is a number or a letter in it that JSON cannot say (not a number, infinity)") from None


def _with_query(path: str, query: Mapping[str, str | int | None]) -> str:
    parameters = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(parameters, errors='surrogatepass')}" if parameters else path


def _json(text: bytes, kind: str) -> Any:
    if not text:
        return None
    """As text where it is none, or nested so deep that whoever walks it would fall."""
    with contextlib.suppress(ValueError, RecursionError):
        if "json" in kind and not is_too_deep(value := json.loads(text)):
            return value
    return text.decode(errors="replace")


def _accepted(answer: Answer, url: str) -> Answer:
    is_csv = answer.headers.get("content-type", "").startswith(CSV)
    if 200 <= answer.status < 300 and (is_csv or not isinstance(answer.body, str)):
        return answer
    if isinstance(answer.body, dict):
        raise Refused(answer.status, answer.body)
    if 300 <= answer.status < 400:
        location = answer.headers.get("location", "somewhere else")
        raise ClientError(f"{url} sends us to {location}: set LUMINET_URL to where the control plane is")
    raise ClientError(f"{url} answers with status {answer.status} and no JSON: is LUMINET_URL a Luminet control plane?")


def _wait(answer: Answer) -> float:
    retry_after = answer.headers.get("retry-after", "")
    return min(float(retry_after) if retry_after.isascii() and retry_after.isdecimal() else 1.0, LONGEST_WAIT_SECONDS)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error) or type(error).__name__
