"""Health checks of the parts of the stack. Each check tests the real thing and raises NotReady with the reason."""

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
    """The part does not answer as it should; the message says how."""


# Our own processes are called directly, even if the environment names a proxy.
_direct = build_opener(ProxyHandler({}))


def http_get(url: str, *, timeout_seconds: float = TIMEOUT_SECONDS + 2, bearer: str | None = None) -> bytes:
    """Return the body of a 200; anything else raises OSError or HTTPException. `bearer` is not sent on to redirects."""
    request = Request(url)
    if bearer:
        request.add_unredirected_header("Authorization", f"Bearer {bearer}")
    with _direct.open(request, timeout=timeout_seconds) as response:
        body: bytes = response.read()
        return body


def redis_client(url: str) -> redis.Redis:
    """Return a client with short timeouts, for checks that a person or a probe waits for."""
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
    """Raise NotReady unless the web process answers its readiness path with 200."""
    try:
        http_get(f"{address}{path}")
    except (OSError, HTTPException, ValueError) as error:
        raise NotReady(f"web: {_first_line(error)}") from error


def data_plane_check(name: str, address: str) -> None:
    """Raise NotReady unless /health passes: the engine serves, the sidecar has joined or the gateway has its state."""
    try:
        http_get(f"{address}/health")
    except (OSError, HTTPException, ValueError) as error:
        raise NotReady(f"{name}: {_first_line(error)}") from error


def worker_check(url: str, hostname: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
    """Raise NotReady unless the worker of this name answers a ping through the broker."""
    from celery import Celery  # slow to import, and only this check needs it

    try:
        replies = Celery(broker=url, set_as_current=False).control.ping(destination=[hostname], timeout=timeout_seconds)
    except Exception as error:  # kombu raises whatever its transport raises: all of it means no answer
        raise NotReady(f"worker: {_first_line(error)}") from error
    if not replies:
        raise NotReady(f"worker: {hostname} did not answer a ping within {timeout_seconds} s")


def beat_check(url: str, *, now: float | None = None) -> None:
    """Raise NotReady unless beat has sent a task within the last seconds."""
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
    """Raise NotReady unless the demo's traffic has reported a state, even waiting, within the last seconds."""
    try:
        with redis_client(url) as client:
            report = client.get(DEMO_TRAFFIC_KEY)
    except redis.RedisError as error:
        raise NotReady(f"demo-traffic: {_first_line(error)}") from error
    if report is None:
        raise NotReady(f"demo-traffic: has said nothing for {DEMO_TRAFFIC_ALIVE_SECONDS} s")


def worker_hostname() -> str:
    return f"control@{socket.gethostname()}"


def loopback_address(host: str, port: int) -> str:
    """Return the URL at which a process that listens on `host` is reached from the same machine."""
    if host in {"0.0.0.0", ""}:  # noqa: S104 (asked about, not bound to)
        host = "127.0.0.1"
    elif host == "::":
        host = "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
