"""The HTTP session of the gateway's own requests to engines: health checks, cache contents and isolation probes."""

import socket
from collections.abc import Iterable
from typing import Any

import aiohttp

from engine_agent.gateway.calling.dialling import CONNECT_SECONDS, stay_awake
from engine_agent.gateway.calling.pool import KEEP_ALIVE_SECONDS

READ_BYTES = 2**18


def session_open() -> aiohttp.ClientSession:
    """Return a session with any number of connections, no cookies, and nothing from the machine's environment."""
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
    new_socket = socket.socket(family, kind, protocol)
    stay_awake(new_socket)
    return new_socket
