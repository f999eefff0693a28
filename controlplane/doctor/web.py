"""Single, direct HTTP and TLS requests: what answers, and which certificate it shows."""

import json
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from controlplane.doctor.finding import NotExamined, first_line


class _Stays(HTTPRedirectHandler):
    """Follows no redirect: another server's answer says nothing about the one that was called."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class BadCertificate(Exception):
    """The certificate is not trusted. The message says why."""


_direct = build_opener(ProxyHandler({}), _Stays)


@dataclass(frozen=True, slots=True)
class WebSeen:
    status: int | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    ahead_seconds: float | None = None  # its clock minus ours, by the header Date: to the second


def web_see(url: str, seconds: float) -> WebSeen:
    try:
        request = Request(url, headers={"Accept": "application/json"})
        began = time.time()
        try:
            answer = _direct.open(request, timeout=seconds)
        except HTTPError as refused:
            answer = refused
        with answer:
            body = answer.read(2**20)
            ahead = date_ahead(answer.headers.get("date"), (began + time.time()) / 2)
            return WebSeen(answer.status, _object(body), ahead_seconds=ahead)
    except (OSError, HTTPException, ValueError) as error:
        return WebSeen(problem=problem_of(error))


def problem_of(error: BaseException) -> str:
    """Return the problem in words, from the error that urllib wraps."""
    inner = error.reason if isinstance(error, URLError) else error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({inner.verify_message})"
    if isinstance(inner, TimeoutError):
        return "no answer in time"
    if isinstance(inner, socket.gaierror):
        return "its name is not known (DNS)"
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror.lower()
    return first_line(inner)


def certificate_end(url: str, seconds: float) -> datetime | None:
    """Return the certificate's end. Raise BadCertificate if it is not trusted, NotExamined if no server shows one."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    try:
        context = ssl.create_default_context()
        with (
            socket.create_connection((host, port), timeout=seconds) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            ends = str((secure.getpeercert() or {}).get("notAfter", ""))
    except ssl.SSLCertVerificationError as error:
        raise BadCertificate(problem_of(error)) from None
    except (OSError, ValueError) as error:
        raise NotExamined(f"{parts.hostname} cannot be reached from here: {problem_of(error)}") from None
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(ends), UTC) if ends else None


def date_ahead(date: str | None, asked_at: float) -> float | None:
    """Return how far a Date header is ahead, to half a second because it omits fractions; None if it is invalid."""
    if not date:
        return None
    try:
        return parsedate_to_datetime(date).timestamp() + 0.5 - asked_at
    except (TypeError, ValueError):
        return None


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
