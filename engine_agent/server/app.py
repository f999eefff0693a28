"""The OpenAI API of one engine as an ASGI application: paths and their endpoints."""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from engine_agent.backends.base import Backend
from engine_agent.engine.errors import RequestError
from engine_agent.http.application import Application, Endpoint
from engine_agent.http.bodies import Bodies
from engine_agent.http.client import Client, ClientGone
from engine_agent.http.errors import ApiError, unavailable
from engine_agent.http.scraping import Scrapers
from engine_agent.journal.journal import Journal
from engine_agent.server.attempts import Attempt
from engine_agent.server.chat import understand_chat
from engine_agent.server.completions import understand_completion
from engine_agent.server.errors import api_error
from engine_agent.server.face import Face, Template, Text, Understand
from engine_agent.server.gateways import BUNDLES, GatewayDoor
from engine_agent.server.guard import Guard
from engine_agent.server.limits import Limits
from engine_agent.server.meter import Meter
from engine_agent.server.metrics import Observer
from engine_agent.server.models import model_list, model_object


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
    clock: Callable[[], float] = time.time,
    gateways: GatewayDoor | None = None,
    scrapers: Scrapers | None = None,
) -> "OpenAiApp":
    """Return the OpenAI API of one engine.

    `limits` default to the model's; the caller opens and closes the journal. `gateways`: the endpoints for the fleet's
    gateways, if the engine is in one. `scrapers`: who may read its metrics.
    """
    bounds = limits or Limits.of(backend.card, tokenizer)
    counting = observer or Observer(backend.card.name)
    face = Face(backend, tokenizer, chat_template, journal, guard, agent_id, bounds, counting, Bodies(bounds), clock)
    return OpenAiApp(face, gateways, scrapers or Scrapers())


class OpenAiApp(Application):
    def __init__(self, face: Face, gateways: GatewayDoor | None, scrapers: Scrapers) -> None:
        super().__init__(write_seconds=face.limits.write_seconds, scrapers=scrapers)
        self._face, self._gateways = face, gateways
        self._paths: Mapping[str, tuple[str, Endpoint]] = {
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completion),
            "/v1/models": ("GET", self._models),
            "/health": ("GET", self._health),
            "/metrics": ("GET", self._metrics),
            **({} if gateways is None else gateways.paths),
        }

    def _endpoint(self, path: str) -> tuple[str, Endpoint]:
        if self._gateways is not None and path.startswith(BUNDLES):
            return "GET", partial(self._gateways.bundle, name=path.removeprefix(BUNDLES))
        return super()._endpoint(path)

    def _refused(self, error: ApiError) -> None:
        self._face.observer.failed(error.code or str(error.status))

    def _stopping(self) -> ApiError:
        return unavailable("The engine is being stopped.", "overloaded")

    def _told(self, problem: Exception, request_id: str) -> ApiError:
        return api_error(problem, {}) if isinstance(problem, RequestError) else super()._told(problem, request_id)

    async def _chat(self, client: Client) -> None:
        await self._generation(client, understand_chat)

    async def _completion(self, client: Client) -> None:
        await self._generation(client, understand_completion)

    async def _generation(self, client: Client, understand: Understand) -> None:
        face = self._face
        identity = face.guard.identify(client.headers, client.request_id)
        client.request_id = identity.request_id
        async with face.bodies.reading(client) as body:
            meter = Meter()
            understood = await understand(face, body)
        try:
            await client.staying(Attempt(face, identity, understood, client, meter).run())
        except Exception as problem:
            if not client.has_answer and _is_our_fault(problem):
                face.observer.unanswered(identity)
            raise

    async def _models(self, client: Client) -> None:
        self._face.guard.identify(client.headers, client.request_id)
        await client.answer_json(200, model_list(self._face.backend.card))

    async def _model(self, client: Client, name: str) -> None:
        self._face.guard.identify(client.headers, client.request_id)
        self._face.check_model(name)
        await client.answer_json(200, model_object(self._face.backend.card))

    async def _health(self, client: Client) -> None:
        """Return whether the engine takes requests, checked between two steps. The admin API checks generation."""
        try:
            async with asyncio.timeout(self._face.limits.stats_seconds):
                is_open = await self._face.backend.is_open()
        except (TimeoutError, RequestError):
            raise unavailable("The engine does not answer.", "engine_unavailable") from None
        if not is_open:
            raise unavailable("The engine takes no more requests now: it finishes what runs.", "draining")
        await client.answer_json(200, {"status": "ok"})

    async def _metrics_text(self) -> bytes:
        stats, size = await self._stats(), self._face.journal.size_bytes
        return self._face.observer.exposition(stats, journal_bytes=size)

    async def _stats(self) -> Mapping[str, Any] | None:
        try:
            async with asyncio.timeout(self._face.limits.stats_seconds):
                return await self._face.backend.stats()
        except (TimeoutError, RequestError):
            return None


def _is_our_fault(problem: Exception) -> bool:
    """Return whether an error is the engine's fault. "Not now" is not: another engine answers, or a retry."""
    if isinstance(problem, ClientGone):
        return False
    return not isinstance(problem, ApiError) or (problem.status >= 500 and problem.status != 503)
