"""The OpenAI face of one engine, as an ASGI application: which path means what, and what every answer has in common."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from engine_agent.backends.base import Backend
from engine_agent.engine.errors import RequestError
from engine_agent.journal import Journal
from engine_agent.server.attempts import Attempt
from engine_agent.server.bodies import Bodies
from engine_agent.server.chat import understand_chat
from engine_agent.server.client import Client, ClientGone, Receive, Scope, Send
from engine_agent.server.completions import understand_completion
from engine_agent.server.errors import ApiError, api_error, failed, unavailable
from engine_agent.server.face import Face, Template, Text, Understood
from engine_agent.server.guard import Guard
from engine_agent.server.headers import PREFLIGHT
from engine_agent.server.limits import Limits
from engine_agent.server.meter import Meter
from engine_agent.server.metrics import CONTENT_TYPE, Observer
from engine_agent.server.models import model_list, model_object

log = logging.getLogger(__name__)
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
Endpoint = Callable[[Client], Awaitable[None]]
_MODEL = "/v1/models/"
_KEYLESS = ("/health", "/metrics")


def openai_app(
    backend: Backend,
    tokenizer: Text,
    chat_template: Template,
    journal: Journal,
    guard: Guard,
    *,
    agent_id: str,
    limits: Limits | None = None,
    observer: Observer | None = None,
) -> "OpenAiApp":
    """`limits` follow the model unless they are given; the journal is the caller's to open and close."""
    bounds = limits or Limits.of(backend.card, tokenizer)
    counting = observer or Observer(backend.card.name)
    return OpenAiApp(
        Face(backend, tokenizer, chat_template, journal, guard, agent_id, bounds, counting, Bodies(bounds))
    )


class OpenAiApp:
    def __init__(self, face: Face) -> None:
        self._face = face
        self._is_stopping = False
        self._paths: Mapping[str, tuple[str, Endpoint]] = {
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completion),
            "/v1/models": ("GET", self._models),
            "/health": ("GET", self._health),
            "/metrics": ("GET", self._metrics),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            client = Client(scope, receive, send, write_seconds=self._face.limits.write_seconds)
            await self._answer(client, scope["method"], scope["path"])

    def stop(self) -> None:
        """The engine behind it ends now. What it fails at from here on is worth asking elsewhere."""
        self._is_stopping = True

    async def _answer(self, client: Client, method: str, path: str) -> None:
        client.is_for_browsers = path not in _KEYLESS
        try:
            await self._dispatch(client, method, path)
        except ClientGone:
            log.info("request %s: the client left", client.request_id)
        except asyncio.CancelledError:  # the server stops, and has waited for it
            if client.has_answer:
                raise
            await self._refuse(client, _stopping())
        except Exception as problem:
            if client.has_answer:
                log.exception("request %s: the answer broke off", client.request_id)
                return
            error = _error(problem, client.request_id)
            await self._refuse(client, _stopping() if self._is_stopping and error.status == 500 else error)

    async def _refuse(self, client: Client, error: ApiError) -> None:
        self._face.observer.failed(error.code or str(error.status))
        try:
            await client.refuse(error)
        except ClientGone:
            log.info("request %s: the client left", client.request_id)

    async def _dispatch(self, client: Client, method: str, path: str) -> None:
        allowed, endpoint = self._endpoint(path)
        methods = ("GET", "HEAD") if allowed == "GET" else (allowed,)
        if method == "OPTIONS":
            await client.start(204, [*PREFLIGHT, ("allow", ", ".join((*methods, "OPTIONS")))])
            await client.write(b"", more=False)
        elif method not in methods:
            allow = {"allow": ", ".join((*methods, "OPTIONS"))}
            raise ApiError(405, f"{path} takes {allowed}.", code="method_not_allowed", headers=allow)
        else:
            await endpoint(client)

    def _endpoint(self, path: str) -> tuple[str, Endpoint]:
        if path.startswith(_MODEL):
            return "GET", lambda client: self._model(client, path.removeprefix(_MODEL))
        if path not in self._paths:
            raise ApiError(404, "There is nothing at this path.", code="not_found")
        return self._paths[path]

    async def _chat(self, client: Client) -> None:
        await self._generation(client, understand_chat)

    async def _completion(self, client: Client) -> None:
        await self._generation(client, understand_completion)

    async def _generation(self, client: Client, understand: Callable[[Face, bytes], Understood]) -> None:
        face = self._face
        identity = face.guard.identify(client.headers, client.request_id)
        client.request_id = identity.request_id
        async with face.bodies.reading(client) as body:
            meter = Meter()
            understood = await face.understood(lambda read: understand(face, read), body)
        await client.staying(Attempt(face, identity, understood, client, meter).run())

    async def _models(self, client: Client) -> None:
        self._face.guard.identify(client.headers, client.request_id)
        await client.answer_json(200, model_list(self._face.backend.card))

    async def _model(self, client: Client, name: str) -> None:
        self._face.guard.identify(client.headers, client.request_id)
        self._face.check_model(name)
        await client.answer_json(200, model_object(self._face.backend.card))

    async def _health(self, client: Client) -> None:
        """Whether the engine takes requests, asked between two steps. Whether it generates, the admin face knows."""
        try:
            async with asyncio.timeout(self._face.limits.stats_seconds):
                is_open = await self._face.backend.is_open()
        except (TimeoutError, RequestError):
            raise unavailable("The engine does not answer.", "engine_unavailable") from None
        if not is_open:
            raise unavailable("The engine takes no more requests now: it finishes what runs.", "draining")
        await client.answer_json(200, {"status": "ok"})

    async def _metrics(self, client: Client) -> None:
        stats, size = await self._stats(), self._face.journal.size_bytes
        text = self._face.observer.exposition(stats, journal_bytes=size)
        await client.answer(200, text, [("content-type", CONTENT_TYPE)])

    async def _stats(self) -> Mapping[str, Any] | None:
        try:
            async with asyncio.timeout(self._face.limits.stats_seconds):
                return await self._face.backend.stats()
        except (TimeoutError, RequestError):
            return None


def _error(problem: Exception, request_id: str) -> ApiError:
    if isinstance(problem, ApiError):
        return problem
    if isinstance(problem, RequestError):
        return api_error(problem, {})
    log.error("request %s: it failed", request_id, exc_info=problem)
    return failed()


def _stopping() -> ApiError:
    return unavailable("The engine is being stopped.", "overloaded")


async def _lifespan(receive: Receive, send: Send) -> None:
    """What there is to open and close is whoever's who serves this."""
    for moment in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{moment}.complete"})
