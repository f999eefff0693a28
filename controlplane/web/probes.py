"""`/healthz`, `/readyz` and `/metrics`, answered before Django, so that no Host check or redirect interferes.

healthz: this process answers. readyz: it can serve, because database, migrations and broker work, too. readyz also
shows the age of the last pulse (beat → broker → worker → database); a late pulse does not make the process unready.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.conf import settings
from django.db import DatabaseError, connection

from controlplane.common.health import NotReady, broker_check
from controlplane.common.metrics import CONTENT_TYPE, before_reading, metrics_text
from controlplane.database.schema import applied, standing_of
from controlplane.live.selectors import pulse_latest
from controlplane.settings.env import Environment
from engine_agent.http.scraping import REFUSAL, Scrapers

Scope = Any  # Django, Channels and uvicorn have different types for the same dictionaries
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
Answer = tuple[int, bytes, str]

_JSON = "application/json"
READINESS_SECONDS = 8
MEASURING_SECONDS = 2


class Probes:
    def __init__(self, inner: Application) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _ANSWERS.get(scope["path"])
        if answer is None:
            await self._inner(scope, receive, send)
        elif scope["method"] not in {"GET", "HEAD"}:
            await _send(send, scope, (405, b'{"error": "GET only"}', _JSON))
        else:
            await _send(send, scope, await answer(scope))


async def _healthz(scope: Scope) -> Answer:
    return 200, b'{"status": "ok"}', _JSON


async def _readyz(scope: Scope) -> Answer:
    try:
        async with asyncio.timeout(READINESS_SECONDS):
            checks, age = await database_sync_to_async(readiness, thread_sensitive=False)(now=time.time())
    except TimeoutError:
        checks, age = {"all": f"no answer within {READINESS_SECONDS} s"}, None
    ready = all(value == "ok" for value in checks.values())
    body = {"status": "ok" if ready else "not ready", "checks": checks, "pulse_age_seconds": age}
    return 200 if ready else 503, json.dumps(body).encode(), _JSON


async def _metrics(scope: Scope) -> Answer:
    environment: Environment = settings.ENVIRONMENT
    if not _may_read_metrics(scope, environment.metrics_token):
        return (
            401,
            f"{REFUSAL}\n".encode(),
            "text/plain",
        )
    with contextlib.suppress(TimeoutError):  # old numbers are better than none
        async with asyncio.timeout(MEASURING_SECONDS):
            await database_sync_to_async(_bring_up_to_date, thread_sensitive=False)()
    return 200, await sync_to_async(metrics_text, thread_sensitive=False)(environment.shared_metrics_dir), CONTENT_TYPE


def _bring_up_to_date() -> None:
    for measure in before_reading:
        measure()


_ANSWERS: dict[str, Callable[[Scope], Awaitable[Answer]]] = {
    "/healthz": _healthz,
    "/readyz": _readyz,
    "/metrics": _metrics,
}


def readiness(*, now: float) -> tuple[dict[str, str], float | None]:
    """Return each dependency's state ("ok" or the problem, without secrets) and the pulse's age in seconds."""
    age = None
    checks = {"database": "ok", "migrations": "ok", "broker": "ok"}
    try:
        with connection.cursor() as cursor:
            cursor.execute("select 1")
        if problem := _misfit():
            checks["migrations"] = problem
        else:
            age = _pulse_age_seconds(now)
    except DatabaseError:
        checks["database"] = checks["migrations"] = "does not answer"
    try:
        broker_check(settings.ENVIRONMENT.redis_url)
    except NotReady:
        checks["broker"] = "does not answer"
    return checks, age


_fits = False


def _misfit() -> str | None:
    """Return why database and code do not fit, or None. A fit is remembered: a database never loses a migration."""
    global _fits
    if _fits:
        return None
    with connection.cursor() as cursor:
        problem = standing_of(applied(cursor)).problem
    _fits = problem is None
    return problem


def _pulse_age_seconds(now: float) -> float | None:
    pulse = pulse_latest()
    return None if pulse is None else round(max(0.0, now - pulse.recorded_at.timestamp()), 1)


def _may_read_metrics(scope: Scope, token: str | None) -> bool:
    """Return whether the client may read metrics. A token, if set, is for all: behind a proxy anyone may look local."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return Scrapers(token).may_read(headers, (scope.get("client") or (None,))[0])


async def _send(send: Send, scope: Scope, answer: Answer) -> None:
    status, body, content_type = answer
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
