"""Is each part really there? Every check does what its name says against the real thing, or raises with the reason."""

import socket
import time
from http.client import HTTPException
from urllib.request import ProxyHandler, Request, build_opener

import psycopg
import redis

TIMEOUT_SECONDS = 3
BEAT_ALIVE_KEY = "luminet:beat:alive"
BEAT_ALIVE_SECONDS = 30
BEAT_SILENT_SECONDS = 10
DEMO_TRAFFIC_KEY = "luminet:demo-traffic:state"
DEMO_TRAFFIC_ALIVE_SECONDS = 15


class NotReady(Exception):
    """The part does not answer as it should; the text says how."""


# Our own processes are asked directly, whatever proxy the environment names for the world outside.
_direct = build_opener(ProxyHandler({}))


def http_get(url: str, *, timeout_seconds: float = TIMEOUT_SECONDS + 2, bearer: str | None = None) -> bytes:
    """The body of a 200; anything else raises OSError or HTTPException. `bearer` is for who is asked, and nobody else
    whom they lead to."""
    request = Request(url)
    if bearer:
        request.add_unredirected_header("Authorization", f"Bearer {bearer}")
    with _direct.open(request, timeout=timeout_seconds) as response:
        body: bytes = response.read()
        return body


def redis_client(url: str) -> redis.Redis:
    """A client that gives up soon, for questions a person or a probe waits for."""
    return redis.Redis.from_url(url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS)


def database_check(url: str) -> None:
    try:
        with psycopg.connect(url, connect_timeout=TIMEOUT_SECONDS) as connection:
            connection.execute("select 1")
    except psycopg.Error as error:
        raise NotReady(f"PostgreSQL: {_first_line(error)}") from error


def broker_check(url: str) -> None:
    try:
        with redis_client(url) as client:
            client.ping()
    except redis.RedisError as error:
        raise NotReady(f"Redis: {_first_line(error)}") from error


def web_check(address: str, *, path: str = "/readyz") -> None:
    """The web process answers 200 on its readiness path."""
    try:
        http_get(f"{address}{path}")
    except (OSError, HTTPException, ValueError) as error:
        raise NotReady(f"web: {_first_line(error)}") from error


def data_plane_check(name: str, address: str) -> None:
    """An engine serves, a sidecar has joined, or a gateway holds what it needs: each says so in the same place."""
    try:
        http_get(f"{address}/health")
    except (OSError, HTTPException, ValueError) as error:
        raise NotReady(f"{name}: {_first_line(error)}") from error


def worker_check(url: str, hostname: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
    """The worker of that name answers a ping that went through the broker."""
    from celery import Celery  # heavy, and the only check that wants it

    try:
        replies = Celery(broker=url, set_as_current=False).control.ping(destination=[hostname], timeout=timeout_seconds)
    except Exception as error:  # kombu raises what the transport raises: any of it means no answer
        raise NotReady(f"worker: {_first_line(error)}") from error
    if not replies:
        raise NotReady(f"worker: {hostname} did not answer a ping within {timeout_seconds} s")


def beat_check(url: str, *, now: float | None = None) -> None:
    """Beat has sent something within the last seconds."""
    try:
        with redis_client(url) as client:
            last = client.get(BEAT_ALIVE_KEY)
    except redis.RedisError as error:
        raise NotReady(f"beat: {_first_line(error)}") from error
    if last is None:
        raise NotReady("beat: has not sent anything yet")
    silent = (time.time() if now is None else now) - int(last)
    if silent > BEAT_SILENT_SECONDS:
        raise NotReady(f"beat: has sent nothing for {silent:.0f} s")


def demo_traffic_check(url: str) -> None:
    """It has said within the last seconds what it does, be that waiting."""
    try:
        with redis_client(url) as client:
            told = client.get(DEMO_TRAFFIC_KEY)
    except redis.RedisError as error:
        raise NotReady(f"demo-traffic: {_first_line(error)}") from error
    if told is None:
        raise NotReady(f"demo-traffic: has said nothing for {DEMO_TRAFFIC_ALIVE_SECONDS} s")


def worker_hostname() -> str:
    return f"control@{socket.gethostname()}"


def loopback_address(host: str, port: int) -> str:
    """Where a process that listens on `host` can be reached from the same machine."""
    if host in {"0.0.0.0", ""}:  # noqa: S104 (asked about, not bound to)
        host = "127.0.0.1"
    elif host == "::":
        host = "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
