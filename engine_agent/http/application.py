"""A base for ASGI applications with a few paths: methods, refusals, unexpected errors, and clients that leave."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client.exposition import CONTENT_TYPE_LATEST

from engine_agent.http.client import Client, ClientGone, Receive, Scope, Send
from engine_agent.http.errors import ApiError, failed
from engine_agent.http.headers import PREFLIGHT
from engine_agent.http.scraping import REFUSAL, Scrapers

log = logging.getLogger(__name__)
Endpoint = Callable[[Client], Awaitable[None]]
KEYLESS = ("/health", "/metrics")
_MODEL = "/v1/models/"


class Application(ABC):
    _paths: Mapping[str, tuple[str, Endpoint]]  # path → its method and endpoint

    def __init__(self, *, write_seconds: float, scrapers: Scrapers) -> None:
        self._write_seconds, self._scrapers = write_seconds, scrapers
        self._is_stopping = False

    @abstractmethod
    async def _model(self, client: Client, name: str) -> None:
        """Answer with the description of one model. Its name may contain slashes."""

    @abstractmethod
    def _refused(self, error: ApiError) -> None:
        """Record an error that a client is about to get."""

    @abstractmethod
    def _stopping(self) -> ApiError:
        """Return the error for clients that are cut off."""

    @abstractmethod
    async def _metrics_text(self) -> bytes:
        """Return the current text of `/metrics`."""

    async def _metrics(self, client: Client) -> None:
        if not self._scrapers.may_read(client.headers, client.host):
            raise ApiError(401, REFUSAL, code="invalid_metrics_token", headers={"www-authenticate": "Bearer"})
        await client.answer(200, await self._metrics_text(), [("content-type", CONTENT_TYPE_LATEST)])

    def _endpoint(self, path: str) -> tuple[str, Endpoint]:
        if path.startswith(_MODEL):
            return "GET", lambda client: self._model(client, path.removeprefix(_MODEL))
        if path not in self._paths:
            raise ApiError(404, "There is nothing at this path.", code="not_found")
        return self._paths[path]

    def _told(self, problem: Exception, request_id: str) -> ApiError:
        """Return the error that a client gets for a problem."""
        if isinstance(problem, ApiError):
            return problem
        log.error("request %s: it failed", request_id, exc_info=problem)
        return failed()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            client = Client(scope, receive, send, write_seconds=self._write_seconds)
            await self._answer(client, scope["method"], scope["path"])

    def stop(self) -> None:
        """Mark the service as ending. From here on, internal errors become retryable errors."""
        self._is_stopping = True

    async def _answer(self, client: Client, method: str, path: str) -> None:
        client.is_for_browsers = path not in KEYLESS
        try:
            await self._dispatch(client, method, path)
        except ClientGone:
            log.info("request %s: the client left", client.request_id)
        except asyncio.CancelledError:  # the server stops, after its grace period
            if client.has_answer:
                raise
            await self._refuse(client, self._stopping())
        except Exception as problem:
            if client.has_answer:
                log.exception("request %s: the answer broke off", client.request_id)
                return
            error = self._told(problem, client.request_id)
            await self._refuse(client, self._stopping() if self._is_stopping and error.status == 500 else error)

    async def _refuse(self, client: Client, error: ApiError) -> None:
        self._refused(error)
        try:
            await client.refuse(error)
        except ClientGone:
            log.info("request %s: the client left", client.request_id)

    async def _dispatch(self, client: Client, method: str, path: str) -> None:
        allowed_method, endpoint = self._endpoint(path)
        methods = ("GET", "HEAD") if allowed_method == "GET" else (allowed_method,)
        if method == "OPTIONS":
            await client.start(204, [*PREFLIGHT, ("allow", ", ".join((*methods, "OPTIONS")))])
            await client.write(b"", more=False)
        elif method not in methods:
            allow_header = {"allow": ", ".join((*methods, "OPTIONS"))}
            raise ApiError(405, f"{path} takes {allowed_method}.", code="method_not_allowed", headers=allow_header)
        else:
            await endpoint(client)


async def _lifespan(receive: Receive, send: Send) -> None:
    """Acknowledge startup and shutdown: the process that serves an application opens and closes its resources."""
    for phase in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{phase}.complete"})
