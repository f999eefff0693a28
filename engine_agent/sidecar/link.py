"""HTTP to the control plane: one connection pool, short timeouts, and answers as plain values or errors.

Requests use https, or http to this machine or to a host that the operator allowed: a token read off the wire would let
its reader act as this agent.
"""

import asyncio
import gzip
import ipaddress
import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from engine_agent.sidecar.clock import ControlPlaneClock
from engine_agent.sidecar.errors import BadAddress, ControlPlaneAway, ControlPlaneRefused

TIMEOUT = aiohttp.ClientTimeout(total=15, connect=5)
SNAPSHOT_TIMEOUT = aiohttp.ClientTimeout(total=60, connect=5)
MOST_ANSWER_BYTES = 2**20
MOST_CONTENT_BYTES = 64 * 2**20
KEEP_ALIVE_SECONDS = 30
REVOKED = (403, "revoked")
LARGEST_PLAIN_BYTES = 1024  # of a batch of reports; larger ones are compressed
PACK_LEVEL = 3
LONGEST_WAIT_SECONDS = 300.0  # longest Retry-After that the agent obeys


def address_check(url: str, plain_http_hosts: Collection[str] = ()) -> str:
    """Return the control plane's address without a trailing slash. Raise BadAddress."""
    parts = urlsplit(url if "://" in url else f"https://{url}")
    host = parts.hostname or ""
    if parts.scheme not in ("https", "http") or not host or parts.query or parts.fragment or parts.username:
        raise BadAddress(f"{url[:200]}: is no address like https://luminet.example.com")
    if parts.scheme == "http" and not (_is_loopback(host) or host in plain_http_hosts):
        problem = (
            f"over http everybody on the way could read this agent's token: use https, or --plain-http-host {host}"
        )
        raise BadAddress(f"{url[:200]}: {problem}")
    return parts.geturl().rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class PulledSnapshot:
    generation: int
    hash: str
    content: bytes | None = field(repr=False)  # None: the agent already has it


class Link:
    """The client of the control plane's agent API. Use and close it in one event loop."""

    def __init__(self, url: str, token: str, clock: ControlPlaneClock) -> None:
        self._url, self.clock = f"{url}/agent/v1", clock
        self.token = token
        # True if the control plane accepts usage and compressed bodies, by its last answer. An older version refuses
        # both.
        self.takes_usage = False
        self.why_revoked: str | None = None  # once set, it stays: a revoked token never becomes valid again
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def enrol(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return await self._json("POST", "/enrol", request, is_known=False)

    async def credentials(self, *, rotate: bool) -> dict[str, Any]:
        return await self._json("POST", "/credentials", {"rotate": rotate})

    async def report(self, batch: bytes) -> dict[str, Any]:
        """Send a batch of reports. Raise ControlPlaneAway or ControlPlaneRefused."""
        is_large = self.takes_usage and len(batch) > LARGEST_PLAIN_BYTES
        body = await asyncio.to_thread(gzip.compress, batch, PACK_LEVEL) if is_large else batch
        answer = await self._json("POST", "/reports", body, encoding="gzip" if is_large else None)
        self.takes_usage = "journal" in answer
        return answer

    async def pin(self, pin_id: str) -> dict[str, Any]:
        _, _, body = await self._ask("GET", f"/pins/{pin_id}", most_bytes=MOST_CONTENT_BYTES)
        return _object(body)

    async def snapshot(self, have: str | None) -> PulledSnapshot:
        query = f"?have={have}" if have else ""
        status, headers, body = await self._ask(
            "GET", f"/snapshot{query}", most_bytes=MOST_CONTENT_BYTES, within=SNAPSHOT_TIMEOUT
        )
        try:
            generation, hash_ = int(headers["x-luminet-generation"]), headers["x-luminet-snapshot"]
        except (KeyError, ValueError):
            raise ControlPlaneAway("a snapshot came without its number or its hash") from None
        return PulledSnapshot(generation, hash_, None if status == 304 else body)

    async def _json(
        self,
        method: str,
        path: str,
        payload: bytes | Mapping[str, Any],
        *,
        is_known: bool = True,
        encoding: str | None = None,
    ) -> dict[str, Any]:
        asked_at = time.monotonic()
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        _, _, answer = await self._ask(method, path, body, is_known=is_known, encoding=encoding)
        document = _object(answer)
        if type(document.get("now")) in (int, float):
            self.clock.learn(document["now"], asked_at=asked_at, answered_at=time.monotonic())
        return document

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        is_known: bool = True,
        encoding: str | None = None,
        most_bytes: int = MOST_ANSWER_BYTES,
        within: aiohttp.ClientTimeout = TIMEOUT,
    ) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"content-type": "application/json"}
        if encoding:
            headers["content-encoding"] = encoding
        if is_known:
            headers["authorization"] = f"Bearer {self.token}"
        try:
            # Follow no redirects: one could send the token over plain http.
            async with self._open().request(
                method, self._url + path, data=body, headers=headers, timeout=within, allow_redirects=False
            ) as answer:
                content = await _read(answer, most_bytes)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
            raise ControlPlaneAway(f"{type(problem).__name__}: {problem}"[:300]) from None
        if answer.status in (200, 201, 304):
            return answer.status, answer.headers, content
        refusal = _refusal(answer.status, content, answer.headers.get("retry-after", ""))
        if isinstance(refusal, ControlPlaneRefused) and (refusal.status, refusal.code) == REVOKED:
            self.why_revoked = str(refusal)
        raise refusal

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=8, keepalive_timeout=KEEP_ALIVE_SECONDS)
            # Use no cookies, and no proxy from the environment.
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self._session


async def _read(answer: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    content = bytearray()
    async for chunk in answer.content.iter_chunked(65_536):
        content += chunk
        if len(content) > most_bytes:
            raise ValueError(f"an answer of more than {most_bytes:,} bytes")
    return bytes(content)


def _object(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ControlPlaneAway("an answer that is no JSON object")
    return document


def _refusal(status: int, content: bytes, retry_after: str = "") -> Exception:
    wait_seconds = _seconds(retry_after) if status in (429, 503) else 0.0
    try:
        error = json.loads(content)["error"]
        code, message = str(error["code"])[:64], str(error["message"])[:300]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ControlPlaneAway(f"an answer with status {status} that says nothing", wait_seconds)
    if status >= 500 or status in (408, 429):
        return ControlPlaneAway(f"{message} ({status} {code})", wait_seconds)
    return ControlPlaneRefused(status, code, message)


def _seconds(retry_after: str) -> float:
    """Return the seconds of a Retry-After header. Our control plane never sends a date, so a date counts as 0."""
    is_number = retry_after.isascii() and retry_after.isdecimal() and len(retry_after) < 10
    return min(LONGEST_WAIT_SECONDS, float(retry_after)) if is_number else 0.0
