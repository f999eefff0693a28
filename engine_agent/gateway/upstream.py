"""Sends one request to one engine, with a signed identity, and returns the answer before its body is read.

It knows no tenants and makes no choice; its exceptions say whether another engine may be tried.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from engine_agent.contracts.identity import HEADER
from engine_agent.gateway.calling.answer import Answer, Lost
from engine_agent.gateway.calling.connection import Connection
from engine_agent.gateway.calling.dialling import Address, address_read
from engine_agent.gateway.calling.pool import Pool
from engine_agent.gateway.tables import Engine
from engine_agent.http.headers import REQUEST_ID

# Headers that concern one connection only, and headers that the gateway sets itself.
_HOP_BY_HOP = ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "upgrade")
_OURS = ("transfer-encoding", "content-length", "date", "server", REQUEST_ID)
_NOT_PASSED_ON = frozenset((*_HOP_BY_HOP, *_OURS))


class Unanswered(Exception):
    """The engine sent no header. The request does not count, and another engine may be tried."""


class NotThere(Unanswered):
    """The engine does not accept connections, or not soon enough: it never got the request."""


class Broken(Exception):
    """The answer began, and cannot be completed."""


class Upstream:
    """A client for engines, with a connection for each request. It pools them, and closes them at its end."""

    def __init__(self) -> None:
        self._pool = Pool()

    async def __aenter__(self) -> "Upstream":
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._pool.close()

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
    ) -> AsyncIterator[Answer]:
        """Yield the answer once its headers have arrived, or raise Unanswered. `waiting` surrounds the wait for them,
        and may end it with a TimeoutError. Leaving the context early ends the request.
        """
        address = address_read(engine.address)
        head = _head(address, path, len(body), identity, request_id)
        connection: Connection | None = None
        try:
            try:
                async with waiting:
                    connection = await self._connection(address)
                    answer = connection.ask(head, body)
                    await connection.send_rest(body)
                    await answer.head()
            except (Lost, TimeoutError) as problem:
                raise Unanswered(str(problem) or type(problem).__name__) from problem
            yield answer
        finally:
            if connection is not None:  # if its answer was not read to the end, the pool closes it
                self._pool.give_back(address, connection)

    async def _connection(self, address: Address) -> Connection:
        try:
            return await self._pool.take(address)
        except OSError as problem:
            raise NotThere(str(problem) or type(problem).__name__) from problem


async def parts(answer: Answer) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. Raise Broken if the connection fails."""
    try:
        while data := await answer.part():
            yield data
    except Lost as problem:
        raise Broken(str(problem)) from problem


async def whole(answer: Answer) -> bytes:
    """Raise Broken if the connection fails."""
    chunks = []
    try:
        while data := await answer.part():
            chunks.append(data)
    except Lost as problem:
        raise Broken(str(problem)) from problem
    return b"".join(chunks)


def passed_on(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the engine's headers that the client may see."""
    connection_options = {
        option.strip().lower() for name, value in headers if name == "connection" for option in value.split(",")
    }
    return [
        (name, value)
        for name, value in headers
        if name not in _NOT_PASSED_ON and name not in connection_options and not name.startswith("access-control-")
    ]


def _head(address: Address, path: str, size: int, identity: str, request_id: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: {address.name}\r\naccept: */*\r\ncontent-type: application/json\r\n"
        f"{HEADER}: {identity}\r\n{REQUEST_ID}: {request_id}\r\ncontent-length: {size}\r\n\r\n"
    ).encode("ascii")
