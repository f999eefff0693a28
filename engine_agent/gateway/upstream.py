"""One request to one engine: headers that say for whom, and an answer before anything of it is read.

Knows no tenants and makes no choice; what it raises says whether another engine may be asked instead.
"""

import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp

from engine_agent.gateway.tables import Engine
from engine_agent.http.headers import REQUEST_ID
from engine_agent.identity import HEADER

CONNECT_SECONDS = 2.0
KEEP_ALIVE_SECONDS = 30.0  # less than an engine's own, so that it is not the one to close
READ_BYTES = 2**18
# A machine that vanishes says nothing: after so long the kernel takes it for gone.
SILENT_SECONDS, ASK_SECONDS, ASKED = 10, 5, 3
# What HTTP means for one connection only, and what is said anew to the client.
_HOP_BY_HOP = ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "upgrade")
_OURS = ("transfer-encoding", "content-length", "date", "server", REQUEST_ID)
_NOT_PASSED_ON = frozenset((*_HOP_BY_HOP, *_OURS))


class Unanswered(Exception):
    """No header came. What was asked is of no account, and another engine may be asked."""


class NotThere(Unanswered):
    """Nobody listens, or not soon enough: nothing was even asked."""


class Broken(Exception):
    """The answer began, and will not end."""


class Upstream:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @asynccontextmanager
    async def asked(
        self,
        engine: Engine,
        path: str,
        body: bytes,
        *,
        identity: str,
        request_id: str,
        waiting: AbstractAsyncContextManager[None],
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Its answer, from the headers on; `waiting`, for as long as there are none, may end that with a TimeoutError.
        Whoever leaves early ends the request. Raises Unanswered.
        """
        headers = {"content-type": "application/json", HEADER: identity, REQUEST_ID: request_id}
        try:
            async with waiting:
                answer = await self._session.post(
                    f"{engine.address}{path}", data=body, headers=headers, allow_redirects=False
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as problem:
            raise NotThere(str(problem)) from problem
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise Unanswered(str(problem) or type(problem).__name__) from problem
        try:
            yield answer
        finally:
            answer.close()  # of an answer that was read to its end, the connection has gone back already


async def parts(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Its body as it comes. Raises Broken."""
    try:
        async for data in answer.content.iter_any():
            yield data
    except (aiohttp.ClientError, TimeoutError, OSError) as problem:
        raise Broken(str(problem) or type(problem).__name__) from problem


async def whole(answer: aiohttp.ClientResponse) -> bytes:
    """Raises Broken."""
    return b"".join([data async for data in parts(answer)])


def passed_on(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Of an engine's headers, what its client gets."""
    named = {name.strip().lower() for name in headers.get("connection", "").split(",")}
    return [
        (name, value)
        for name, value in ((name.lower(), value) for name, value in headers.items())
        if name not in _NOT_PASSED_ON and name not in named and not name.startswith("access-control-")
    ]


def session_open() -> aiohttp.ClientSession:
    """As many connections as there are requests; nothing of a machine's environment, no cookies."""
    connector = aiohttp.TCPConnector(
        limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, ttl_dns_cache=30, socket_factory=_socket
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        raise_for_status=False,
        read_bufsize=READ_BYTES,
        trust_env=False,
        skip_auto_headers=("user-agent", "accept-encoding"),
    )


def _socket(address: Iterable[Any]) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", SILENT_SECONDS), ("TCP_KEEPINTVL", ASK_SECONDS), ("TCP_KEEPCNT", ASKED)):
        if hasattr(socket, name):  # Linux, and by then most others
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
