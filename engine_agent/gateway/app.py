"""The gateway's OpenAI API as an ASGI application: authenticates a request, finds its engines, and forwards it."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

from prometheus_client.registry import Collector

from engine_agent.gateway.asked import Asked, Reader
from engine_agent.gateway.forwarding import Forwarding, Ways
from engine_agent.gateway.held import Held
from engine_agent.gateway.keys import Caller, caller_of
from engine_agent.gateway.limits import Limits
from engine_agent.gateway.metrics import model_label
from engine_agent.gateway.models import model_list, models_served, names_served
from engine_agent.gateway.permit import Permit
from engine_agent.gateway.quotas.metering import Meter, Telling, tokens_asked
from engine_agent.gateway.quotas.rates import Exceeded, Quotas
from engine_agent.gateway.refusals import draining, limit_reached, not_ready, revoked, route_refusal, stopping
from engine_agent.gateway.route import Decided, Groups, RouteError, Wish
from engine_agent.gateway.tables import Tables
from engine_agent.http.application import Application, Endpoint
from engine_agent.http.bodies import Bodies
from engine_agent.http.client import Client
from engine_agent.http.errors import ApiError, model_not_found
from engine_agent.http.headers import REQUEST_ID
from engine_agent.http.scraping import Scrapers
from engine_agent.http.sse import event

GENERATING = ("/v1/chat/completions", "/v1/completions")


@dataclass(frozen=True, slots=True)
class Door:
    """The dependencies that all endpoints share."""

    held: Held
    check: Callable[[], bytes] = field(repr=False)  # returns the key that API keys are digested with
    ways: Ways
    limits: Limits
    collectors: Iterable[Collector] = ()  # registries of other components in this process, for /metrics
    scrapers: Scrapers = field(default_factory=Scrapers)  # the clients that may read /metrics
    quotas: Quotas = field(default_factory=Quotas)
    agent: str = ""  # this gateway's id, among those that share limits
    clock: Callable[[], float] = time.monotonic

    def gateways(self, tables: Tables) -> int:
        return len({*tables.gateways, self.agent} - {""}) or 1


class GatewayApp(Application):
    def __init__(self, context: Door) -> None:
        super().__init__(write_seconds=context.limits.write_seconds, scrapers=context.scrapers)
        self._door, self.bodies, self._reader = context, Bodies(context.limits), Reader()
        self._in_flight: set[asyncio.Timeout] = set()
        self._paths: Mapping[str, tuple[str, Endpoint]] = {
            **{path: ("POST", self._generating(path)) for path in GENERATING},
            "/v1/models": ("GET", self._models),
            "/health": ("GET", self._health),
            "/metrics": ("GET", self._metrics),
        }

    def _refused(self, error: ApiError) -> None:
        self._door.ways.observer.refused(error.code or str(error.status))

    def _stopping(self) -> ApiError:
        return stopping()

    def _generating(self, path: str) -> Endpoint:
        return lambda client: self._uncut(client, path)

    def cut(self) -> None:
        """End every running answer with an error: this gateway stopped."""
        self.stop()
        for limit in tuple(self._in_flight):
            limit.reschedule(asyncio.get_running_loop().time())

    async def _uncut(self, client: Client, path: str) -> None:
        """Answer a generation request, until it ends or `cut` ends it."""
        try:
            async with asyncio.timeout(None) as limit:
                self._in_flight.add(limit)
                try:
                    await self._generation(client, path)
                finally:
                    self._in_flight.discard(limit)
        except TimeoutError:
            if not limit.expired():
                raise
            await self._break_off(client)

    async def _break_off(self, client: Client) -> None:
        if not client.has_answer:
            raise stopping()
        if client.reads_events:
            self._refused(stopping())
            await client.write(event(stopping().body), more=False)

    async def _generation(self, client: Client, path: str) -> None:
        tables, caller = self._caller(client)
        async with self.bodies.reading(client) as body:
            request = await self._reader.read(body)
            forwarding = Forwarding(
                self._door.ways,
                client,
                self._permit(client, tables, caller, request),
                path,
                request,
                request_id=_once(client),
                model_label=model_label(request.model, tables.models),
            )
            with self._counted(client, tables, caller, request):
                await client.staying(forwarding.run())

    @contextmanager
    def _counted(self, client: Client, tables: Tables, caller: Caller, request: Asked) -> Iterator[None]:
        """Count the request against its organisation's limits while it runs. Raise ApiError if a limit is reached."""
        context, organisation = self._door, caller.organisation
        tokens = tokens_asked(request.told, len(request.body), most=tables.most_context_tokens)
        try:
            grant = context.quotas.take(
                organisation.id,
                organisation.limits,
                tokens=tokens,
                gateways=context.gateways(tables),
                now=context.clock(),
            )
        except Exceeded as problem:
            context.ways.observer.limited(organisation.slug, problem.limit)
            raise limit_reached(organisation.slug, problem) from None
        if grant is None:
            yield
            return
        client.witness = meter = Meter(grant, tokens, len(request.body), context.clock)
        try:
            yield
        except ApiError:
            meter.refused()
            raise
        finally:
            meter.end()

    def _caller(self, client: Client) -> tuple[Tables, Caller]:
        state = self._door.held
        if state.is_revoked:
            raise revoked()
        if not state.has_snapshot:
            raise not_ready()
        tables = state.tables  # one snapshot for the whole request
        caller = self._recognised(client, tables)
        if caller.organisation.limits:
            client.witness = self._telling(tables, caller)
        if state.is_draining:
            raise draining()
        return tables, caller

    def _telling(self, tables: Tables, caller: Caller) -> Telling:
        context, organisation = self._door, caller.organisation
        return Telling(
            lambda: context.quotas.levels(
                organisation.id, organisation.limits, gateways=context.gateways(tables), now=context.clock()
            )
        )

    def _recognised(self, client: Client, tables: Tables) -> Caller:
        return caller_of(tables, self._door.check(), client.headers, now=self._door.ways.now())

    def _permit(self, client: Client, tables: Tables, caller: Caller, request: Asked) -> Permit:
        recognise, route = partial(self._recognised, client), partial(self._groups, request)
        return Permit(self._door.held, tables, caller, recognise=recognise, route=route, now=self._door.ways.now)

    def _groups(self, request: Asked, tables: Tables, caller: Caller, decided: Decided) -> Groups:
        route_request = Wish(caller.organisation, caller.namespace, request.model, request.kv_dtype)
        try:
            return self._door.ways.router.groups(tables, route_request, decided)
        except RouteError as problem:
            raise route_refusal(problem, request.model, lambda: self._served(tables)) from None

    async def _models(self, client: Client) -> None:
        tables, _ = self._caller(client)
        await client.answer_json(200, model_list(models_served(tables, self._door.ways.engines.standing)))

    async def _model(self, client: Client, name: str) -> None:
        tables, _ = self._caller(client)
        model = models_served(tables, self._door.ways.engines.standing).get(name)
        if model is None:
            raise model_not_found(name, self._served(tables))
        await client.answer_json(200, model)

    def _served(self, tables: Tables) -> Iterable[str]:
        return names_served(tables, self._door.ways.engines.standing)

    async def _health(self, client: Client) -> None:
        """Report healthy even if no engine answers: clients of another gateway would fare no better."""
        state, load_of = self._door.held, self._door.ways.engines.standing
        if self._is_stopping:
            raise stopping()
        if state.is_revoked:
            raise revoked()
        if state.is_draining:
            raise draining()
        if not state.has_snapshot:
            raise not_ready()
        reachable = sum(load_of(agent).is_reachable for agent in state.tables.engines)
        await client.answer_json(200, {"status": "ok", "engines": len(state.tables.engines), "reachable": reachable})

    async def _metrics_text(self) -> bytes:
        ways = self._door.ways
        engines = {agent: ways.engines.standing(agent) for agent in self._door.held.tables.engines}
        return ways.observer.exposition(engines, self._door.collectors, waiting=ways.gate.waiting)


def _once(client: Client) -> str:
    """Return an id that the engine has not seen: clients may reuse theirs. The answer carries the client's id."""
    is_its_own = client.headers.get(REQUEST_ID) == client.request_id
    return f"{client.request_id}.{uuid4().hex[:12]}" if is_its_own else client.request_id
