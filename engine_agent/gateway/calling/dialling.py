"""Opens new connections to engines, within time limits, and makes the kernel notice a machine that vanishes later."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any
from urllib.parse import urlsplit

from engine_agent.gateway.calling.connection import Connection

CONNECT_SECONDS = 2.0  # limit for the name lookup, the connection and the TLS handshake
NAMES_SECONDS = 30.0  # how long a name's addresses are cached
MOST_NAMES = 1_000
# A machine that vanishes sends nothing: within this time the kernel declares it dead, whether or not bytes are in
# flight. The gateway's own health checks notice it as soon (`silence.py`), but only for engines that it waits for.
SILENT_SECONDS = 8
IDLE_SECONDS, ASK_SECONDS, ASKED = 4, 1, 4

Place = tuple[Any, ...]  # an entry of the result of `getaddrinfo`


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    is_secure: bool
    name: str  # the value of the Host header


@lru_cache(maxsize=4_096)
def address_read(address: str) -> Address:
    """Parse `http://host:port`, as snapshots contain it."""
    parts = urlsplit(address)
    is_secure = parts.scheme == "https"
    name = parts.netloc if parts.netloc.isascii() else parts.netloc.encode("idna").decode()
    return Address(parts.hostname or "", parts.port or (443 if is_secure else 80), is_secure, name)


class Dialling:
    def __init__(self) -> None:
        self._names: dict[tuple[str, int], tuple[float, Sequence[Place]]] = {}

    async def dial(self, address: Address, on_end: Callable[[Connection], None]) -> Connection:
        """Return a new connection. Raise OSError on failure, of which TimeoutError and TLS errors are subclasses."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS) as limit:
            opened_socket = await _connected(await self._places(address), until=limit.when() or 0.0)
            try:
                _, connection = await loop.create_connection(
                    lambda: Connection(on_end),
                    sock=opened_socket,
                    ssl=_tls() if address.is_secure else None,
                    server_hostname=address.host if address.is_secure else None,
                )
            except BaseException:
                opened_socket.close()
                raise
        return connection

    async def _places(self, address: Address) -> Sequence[Place]:
        name = address.host, address.port
        with suppress(socket.gaierror, UnicodeError):  # an IP address needs no lookup and no waiting
            return socket.getaddrinfo(*name, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        now = asyncio.get_running_loop().time()
        until, resolved_addresses = self._names.get(name, (0.0, ()))
        if until <= now:
            resolved_addresses = await _looked_up(*name)
            if len(self._names) >= MOST_NAMES:
                self._names.clear()
            self._names[name] = (now + NAMES_SECONDS, resolved_addresses)
        return resolved_addresses


async def _looked_up(host: str, port: int) -> Sequence[Place]:
    try:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as problem:  # not a valid host name
        raise OSError(f"{host}: {problem}") from problem


async def _connected(resolved_addresses: Iterable[Place], *, until: float) -> socket.socket:
    """Try the addresses in order. A silent one gets only its share of the remaining time."""
    loop, remaining = asyncio.get_running_loop(), list(resolved_addresses)
    problem: OSError = OSError("the name leads nowhere")
    while remaining:
        seconds = (until - loop.time()) / len(remaining)
        try:
            return await _connected_to(remaining.pop(0), seconds)
        except OSError as error:
            problem = error
    raise problem


async def _connected_to(resolved_address: Place, seconds: float) -> socket.socket:
    family, kind, protocol, _, address = resolved_address
    new_socket = socket.socket(family, kind, protocol)
    try:
        new_socket.setblocking(False)
        new_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stay_awake(new_socket)
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().sock_connect(new_socket, address)
    except BaseException:
        new_socket.close()
        raise
    return new_socket


def stay_awake(new_socket: socket.socket) -> None:
    new_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", IDLE_SECONDS),
        ("TCP_KEEPINTVL", ASK_SECONDS),
        ("TCP_KEEPCNT", ASKED),
        ("TCP_USER_TIMEOUT", 1_000 * SILENT_SECONDS),
    ):
        if hasattr(socket, name):  # Linux has them all, most other systems some
            new_socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
