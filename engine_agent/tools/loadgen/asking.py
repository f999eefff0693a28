"""Send one request over HTTP. It streams, so that every piece of its answer has a time."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from engine_agent.tools.loadgen.answer import Answer
from engine_agent.tools.loadgen.outcome import Outcome
from engine_agent.tools.loadgen.server import Server
from engine_agent.tools.loadgen.sse import EventReader
from engine_agent.tools.loadgen.workloads import Asked

SENT_AT_ONCE = 8192  # connections; further requests wait here, and that wait is part of their time
FAILURES = (aiohttp.ClientError, OSError, TimeoutError, ValueError, LookupError, TypeError, AttributeError)


@asynccontextmanager
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session with a new connection for each request, because a server may close an idle one at any time."""
    connector = aiohttp.TCPConnector(limit=SENT_AT_ONCE, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as opened:
        yield opened


async def ask(
    opened: aiohttp.ClientSession,
    server: Server,
    request: Asked,
    *,
    began: float | None = None,
    due: float | None = None,
) -> Outcome:
    """Return the outcome of a request; errors of the server never raise.

    `began` is the start of the run, `due` the planned time of this request, both by `time.perf_counter`.
    """
    body = json.dumps(server.body(request)).encode()
    now = time.perf_counter()
    answer = Answer(now, sent=now - (now if began is None else began), late=0.0 if due is None else max(0.0, now - due))
    try:
        async with asyncio.timeout(server.timeout_seconds):
            await _listen(opened, server, body, answer)
    except FAILURES as problem:
        answer.fail(*failure(problem))
    return answer.outcome()


async def _listen(opened: aiohttp.ClientSession, server: Server, body: bytes, answer: Answer) -> None:
    headers = {**server.all_headers, "content-type": "application/json", "accept": "text/event-stream"}
    async with opened.post(server.path, data=body, headers=headers) as response:
        if response.status != 200:
            answer.fail(*refusal(response.status, await response.content.read(2**16)))
            return
        answer.headers(response.headers)
        reader = EventReader()
        async for chunk in response.content.iter_any():
            now = time.perf_counter()
            for event in reader.push(chunk):
                answer.take(event, now)
    answer.end()


def refusal(status: int, body: bytes) -> tuple[str, str]:
    """Return the kind of error, status with code, for counts, and the error's message."""
    try:
        error = json.loads(body)["error"]
        code, message = error.get("code") or error.get("type"), str(error.get("message"))
    except (ValueError, LookupError, TypeError, AttributeError):
        code, message = None, body.decode(errors="replace")
    return f"HTTP {status} {code}" if isinstance(code, str) else f"HTTP {status}", message


def failure(problem: BaseException) -> tuple[str, str]:
    """Return the kind of error, and its details."""
    if isinstance(problem, TimeoutError):
        return "no answer in time", ""
    if isinstance(problem, aiohttp.ClientConnectorError):
        return "cannot connect", problem.os_error.strerror or str(problem.os_error)
    if isinstance(problem, aiohttp.ClientError | OSError):
        return "the connection broke", str(problem) or type(problem).__name__
    return "an answer that cannot be read", str(problem)
