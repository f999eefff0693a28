"""Forwards a request to an engine, or to another if the first sends no header, and passes the answer to the client.

Until an engine has sent a header, nothing is counted anywhere, and the next engine may get the request as another
attempt. Afterwards the answer is that engine's: complete, or a stream that ends with an error event. The current
snapshot decides whether and where a request may go, before each attempt and while it waits for one.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from engine_agent.contracts.identity import LIFETIME_SECONDS, Identity, sign
from engine_agent.gateway.asked import Asked
from engine_agent.gateway.calling.answer import Answer
from engine_agent.gateway.engines import Engines
from engine_agent.gateway.events import WholeEvents
from engine_agent.gateway.keys import SCOPE
from engine_agent.gateway.knowing.knowing import Knowing
from engine_agent.gateway.metrics import Observer, Outcome, Retry
from engine_agent.gateway.permit import Permit
from engine_agent.gateway.quotas.gate import Gate
from engine_agent.gateway.refusals import broken_off, no_engine
from engine_agent.gateway.route import Router, elsewhere_tokens, named
from engine_agent.gateway.scoring import BLIND, Sight
from engine_agent.gateway.sighting import Sees, sees_of
from engine_agent.gateway.tables import Engine
from engine_agent.gateway.upstream import Broken, NotThere, Unanswered, Upstream, parts, passed_on, whole
from engine_agent.http.client import EVENTS, Client, ClientGone, Headers
from engine_agent.http.errors import ApiError
from engine_agent.http.sse import event

log = logging.getLogger(__name__)
FAILED, UNAVAILABLE = 500, 503
DISBELIEVED = (401, 409)  # meant for the gateway, not for its client
MOST_UNREACHABLE = 3  # attempts at engines that seem unreachable: each costs seconds, and is a last resort
MOST_DISCONNECTED = 2  # a request that two engines dropped is not tried on a third: it may have crashed them


@dataclass(frozen=True, slots=True)
class Ways:
    """The dependencies that all forwarded requests share."""

    router: Router
    engines: Engines
    upstream: Upstream
    observer: Observer
    now: Callable[[], float]  # unix seconds by the control plane's clock, by which engines check identities
    gate: Gate
    knowing: Knowing | None = None  # the prefix index; None: route by load alone


@dataclass(frozen=True, slots=True)
class Refusal:
    """An engine's refusal, for the client if no other engine answers."""

    status: int
    headers: Headers
    body: bytes


class Forwarding:
    def __init__(
        self,
        ways: Ways,
        client: Client,
        permit: Permit,
        path: str,
        request: Asked,
        *,
        request_id: str,
        model_label: str,
    ) -> None:
        self._ways, self._client, self._permit = ways, client, permit
        self._path, self._asked, self._request_id = path, request, request_id
        self._model_label = model_label
        self._attempts = self._disconnected = self._unreachable = 0
        self._is_last = False  # no attempt follows this one
        self._is_lost = False  # the engine of the last attempt disconnected
        self._tried: set[str] = set()
        self._refusal: Refusal | None = None
        self._began = time.perf_counter()
        self._sight = BLIND  # the hints by which this attempt's engine was chosen
        self._elsewhere_tokens = 0

    async def run(self) -> None:
        """Answer the client, or raise ApiError before an answer has begun."""
        outcome: Outcome = "left"  # unless it ends otherwise
        try:
            outcome = "answered" if await self._is_answered() else "refused"
        except Broken:  # a stream, which has ended with an error event
            outcome = "broken"
        except asyncio.CancelledError:
            outcome = "left" if self._client.has_left else "broken"  # otherwise this gateway stops
            raise
        except Exception as problem:
            outcome = "left" if isinstance(problem, ClientGone) else "refused"
            raise
        finally:
            self._ways.observer.ended(self._model_label, outcome)

    async def _is_answered(self) -> bool:
        permit, gate = self._permit, self._ways.gate
        current_hints = await sees_of(self._ways.knowing, permit.caller, self._asked, self._path)
        until = gate.until()
        while (first := self._picked(current_hints())) is not None:
            organisation, lane = permit.caller.organisation.id, frozenset(named(permit.groups)) - self._tried
            pick = partial(self._next, current_hints, first.agent)
            async with gate.seat(organisation, pick, lane=lane, until=until, check=permit.check) as engine:
                if await self._is_answered_by(engine):
                    return True
        if self._refusal is None:
            raise self._nobody()
        await self._client.answer(self._refusal.status, self._refusal.body, self._refusal.headers)
        return False

    def _next(self, current_hints: Sees, chosen: str) -> Engine | None:
        """Return the engine for the next attempt: `chosen`, or another one with room if that is full. None: wait.
        Raise ApiError if none is left. The request may have waited long: check the key, the engines and their load
        again.
        """
        self._permit.renew()
        groups, load_of, hints = self._permit.groups, self._ways.engines.standing, current_hints()
        chosen_load = load_of(chosen)
        available = {agent: engine for agent, engine in named(groups).items() if not load_of(agent).is_silent}
        chosen_engine = available.get(chosen)  # None: it no longer takes requests
        engine = chosen_engine
        if chosen_engine is None or chosen_load.is_full or not chosen_load.is_wanted:
            alternative = self._ways.router.pick(groups, load_of, self._tried, hints, is_free=True)
            engine = alternative or (None if chosen_load.is_full else chosen_engine)
        if engine is None and chosen_engine is None and not available.keys() - self._tried:
            raise self._nobody()
        if engine is not None:
            self._sight, self._elsewhere_tokens = hints, elsewhere_tokens(groups, load_of, hints, engine.agent)
        return engine

    def _nobody(self) -> ApiError:
        engines = named(self._permit.groups)
        is_silent = any(self._ways.engines.standing(agent).is_silent for agent in engines)
        return no_engine(self._asked.model, tried=len(self._tried), is_lost=self._is_lost, is_silent=is_silent)

    def _picked(self, hints: Sight) -> Engine | None:
        self._permit.renew()
        if self._disconnected >= MOST_DISCONNECTED:
            return None
        groups, load_of = self._permit.groups, self._ways.engines.standing
        engine = self._ways.router.pick(groups, load_of, self._tried, hints)
        if engine is not None and not load_of(engine.agent).is_reachable:  # no reachable engine is left
            self._unreachable += 1
            engine = engine if self._unreachable <= MOST_UNREACHABLE else None
        if engine is None and self._disconnected and not self._is_last:
            # A pooled connection from before an engine's restart fails like an engine that crashed: try once more.
            self._is_last = True
            return self._ways.router.pick(groups, load_of, (), hints)
        return engine

    async def _is_answered_by(self, engine: Engine) -> bool:
        self._attempts += 1
        self._tried.add(engine.agent)
        identity = sign(self._identity(engine), engine.secret)
        self._ways.observer.routed(time.perf_counter() - self._began)
        upstream = self._ways.upstream
        try:
            async with upstream.asked(
                engine,
                self._path,
                self._asked.body,
                identity=identity,
                request_id=self._request_id,
                waiting=self._ways.engines.waiting(engine.agent),
            ) as answer:
                if answer.status == UNAVAILABLE or answer.status in DISBELIEVED:
                    await self._keep(engine, answer)
                    return False
                self._ways.observer.answering(self._model_label, time.perf_counter() - self._began)
                self._count(engine, answer)
                await self._pass_on(engine, answer)
                self._judge(engine, answer.status)
                return True
        except NotThere as problem:
            self._is_lost = False
            self._ways.engines.unreachable(engine.agent, str(problem))
            self._ways.engines.failed(engine.agent)
            self._retry("unreachable", engine, problem)
        except Unanswered as problem:
            self._disconnected, self._is_lost = self._disconnected + 1, True
            self._ways.engines.failed(engine.agent)
            self._retry("disconnected", engine, problem)
        except Broken:
            self._ways.engines.failed(engine.agent)
            raise
        return False

    def _judge(self, engine: Engine, status: int) -> None:
        engines = self._ways.engines
        (engines.failed if status >= FAILED else engines.succeeded)(engine.agent)

    def _count(self, engine: Engine, answer: Answer) -> None:
        """Record the forecast of cached tokens together with the engine's own counts."""
        prompt, cached = (answer.header(f"x-luminet-{name}-tokens") for name in ("prompt", "cached"))
        is_foretold = self._sight.is_countable and engine.agent in self._sight.matches
        if is_foretold and prompt.isdecimal() and cached.isdecimal():
            self._ways.observer.foretold(self._sight.matched(engine.agent), int(cached), int(prompt))

    def _identity(self, engine: Engine) -> Identity:
        now, caller = self._ways.now(), self._permit.caller
        organisation, namespace = caller.organisation, caller.namespace
        return Identity(
            organisation_id=organisation.id,
            organisation=organisation.slug,
            namespace_id=namespace.id,
            namespace=namespace.slug,
            scope=SCOPE,
            policy_revision=namespace.revision,
            request_id=self._request_id,
            attempt=self._attempts,
            kind="customer",
            deadline=None,
            issued_at=now,
            expires_at=now + LIFETIME_SECONDS,
            audience=engine.agent,
            elsewhere_tokens=self._elsewhere_tokens,
            key_id=caller.key_id,
        )

    # Answers that are not passed on

    async def _keep(self, engine: Engine, answer: Answer) -> None:
        try:
            async with self._ways.engines.waiting(engine.agent):
                body = await whole(answer)
        except (Broken, TimeoutError) as problem:
            raise Unanswered(str(problem)) from problem
        if answer.status in DISBELIEVED:
            log.error(
                "request %s: engine %s does not believe this gateway: %.200r", self._request_id, engine.agent, body
            )
            self._ways.engines.failed(engine.agent)
            self._retry("disbelieved", engine, None)
            return
        self._refusal = Refusal(answer.status, passed_on(answer.headers), body)
        self._retry("unavailable", engine, None)

    def _retry(self, reason: Retry, engine: Engine, problem: Exception | None) -> None:
        self._ways.observer.retried(reason)
        if problem is not None:
            log.info("request %s: %s at engine %s: %s", self._request_id, reason, engine.agent, problem)

    # The answer that is passed on

    async def _pass_on(self, engine: Engine, answer: Answer) -> None:
        headers = passed_on(answer.headers)
        if answer.media_type == EVENTS:
            await self._client.start(answer.status, headers)
            await self._pass_on_events(engine, answer)
            return
        try:
            async with self._ways.engines.waiting(engine.agent):
                body = await whole(answer)
        except (Broken, TimeoutError) as problem:
            self._ways.engines.failed(engine.agent)
            log.warning("request %s: engine %s broke off its answer: %s", self._request_id, engine.agent, problem)
            raise broken_off() from problem
        await self._client.answer(answer.status, body, headers)

    async def _pass_on_events(self, engine: Engine, answer: Answer) -> None:
        events = WholeEvents()
        try:
            async with self._ways.engines.waiting(engine.agent):
                await self._pass_on_parts(engine, answer, events)
        except (Broken, TimeoutError) as problem:
            log.warning("request %s: engine %s broke off its stream: %s", self._request_id, engine.agent, problem)
            self._ways.observer.refused("engine_lost")
            await self._client.write(event(broken_off().body), more=False)
            raise Broken(str(problem)) from problem
        await self._client.write(events.rest(), more=False)

    async def _pass_on_parts(self, engine: Engine, answer: Answer, events: WholeEvents) -> None:
        async for data in parts(answer):
            self._ways.engines.spoke(engine.agent)
            if complete_events := events.take(data):
                await self._client.write(complete_events)
