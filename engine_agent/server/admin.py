"""The admin API of one engine, for its sidecar and operators on its machine. Small JSON both ways.

Access is restricted by its transport: a socket that only its owner may open, or loopback with a token. docs/engine.md
lists all endpoints.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from engine_agent.backends.base import Backend
from engine_agent.contracts.protocol import news_decode
from engine_agent.engine.errors import BadRequest
from engine_agent.http.strict_json import read_object
from engine_agent.journal.journal import Journal, entry_document
from engine_agent.server.admin_errors import AdminError, exception_handlers
from engine_agent.server.alone import LocalTenants
from engine_agent.server.counters import EngineTotals, ScopeCounters
from engine_agent.server.face import Template
from engine_agent.server.fleet_clock import FleetClock
from engine_agent.server.health import Prober
from engine_agent.server.pin_content import Encoder, pin_content, pin_tokens
from engine_agent.server.policy_file import pin_wish
from engine_agent.server.receipts import Receipts

MOST_SNAPSHOT_BYTES = 64 * 2**20
MOST_BODY_BYTES = 32 * 2**20
MOST_RECORDS = 10_000
MOST_SCOPES = 64
MOST_FORETOLD = 8
FARTHEST_SECONDS = 100 * 365 * 86_400.0  # the largest clock error that is accepted
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
Handler = Callable[[Request], Awaitable[Response]]


class AdminFace:
    """The admin API. `tenants` exists on a standalone engine, where it makes the control plane's decisions."""

    def __init__(
        self,
        backend: Backend,
        journal: Journal,
        *,
        agent_id: str,
        tokenizer: Encoder,
        template: Template | None,
        tenants: LocalTenants | None = None,
        prober: Prober | None = None,
        counters: ScopeCounters | None = None,
        totals: EngineTotals | None = None,
        clock: FleetClock | None = None,
        address: str = "",
    ) -> None:
        self._backend, self._journal, self._tenants = backend, journal, tenants
        self._agent_id = agent_id
        self._tokenizer, self._template = tokenizer, template
        self._prober = prober or Prober(backend)
        self._receipts = Receipts(backend)
        self._counters, self._totals = counters or ScopeCounters(0), totals or EngineTotals()
        self._clock = clock or FleetClock()
        self._address = address

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/apply", self._apply, methods=["POST"]),
                Route("/snapshot", self._snapshot, methods=["GET"]),
                Route("/purge", self._purge, methods=["POST"]),
                Route("/receipts", self._get_receipts, methods=["GET"]),
                Route("/pins", self._pins, methods=["GET"]),
                Route("/pins", self._pin, methods=["POST"]),
                Route("/pins/{id}", self._unpin, methods=["DELETE"]),
                Route("/pins/{id}/content", self._content, methods=["PUT"]),
                Route("/drain", self._drain, methods=["POST"]),
                Route("/resume", self._resume, methods=["POST"]),
                Route("/journal", self._records, methods=["GET"]),
                Route("/journal/boots", self._boots, methods=["GET"]),
                Route("/journal/cut", self._cut, methods=["POST"]),
                Route("/stats", self._stats, methods=["GET"]),
                Route("/brief", self._brief, methods=["GET"]),
                Route("/levels", self._levels, methods=["GET"]),
                Route("/gaps", self._gaps, methods=["GET"]),
                Route("/counters", self._get_counters, methods=["GET"]),
                Route("/clock", self._set_clock, methods=["PUT"]),
                Route("/events", self._events, methods=["GET"]),
                Route("/integrity", self._integrity, methods=["POST"]),
                Route("/health", self._health, methods=["GET"]),
            ],
            exception_handlers=exception_handlers,
        )

    # Policies

    async def _apply(self, request: Request) -> Response:
        self._check_fleet()
        update = await asyncio.to_thread(news_decode, await _body(request, MOST_SNAPSHOT_BYTES))
        return _json({"hash": await self._backend.apply(update)})

    async def _snapshot(self, request: Request) -> Response:
        return _json({"hash": (await self._backend.stats())["snapshot_hash"]})

    async def _purge(self, request: Request) -> Response:
        return _json({"epoch": await self._alone().purge()}, 202)

    async def _get_receipts(self, request: Request) -> Response:
        after = _whole(request, "after", 0)
        is_of_this_boot = request.query_params.get("boot") == self._journal.boot  # others' numbers mean nothing here
        receipts = await self._receipts.after(after if is_of_this_boot else 0)
        return _json({"boot": self._journal.boot, "receipts": receipts})

    # Pins

    async def _pins(self, request: Request) -> Response:
        return _json({"pins": await self._backend.pins()})

    async def _pin(self, request: Request) -> Response:
        tenants, fields = self._alone(), await _object(request)
        return _json({"id": await tenants.pin(pin_wish(fields))}, 201)

    async def _unpin(self, request: Request) -> Response:
        await self._alone().unpin(_pin_id(request))
        return Response(status_code=204)

    async def _content(self, request: Request) -> Response:
        pin_id, content = _pin_id(request), pin_content(await _object(request))
        tokens = await pin_tokens(content, self._backend.card, self._tokenizer, self._template)
        await self._backend.set_pin_content(pin_id, tokens)
        return _json({"id": pin_id, "tokens": len(tokens)})

    # Work

    async def _drain(self, request: Request) -> Response:
        return _json({"is_draining": True, "left": await self._backend.drain(True)})

    async def _resume(self, request: Request) -> Response:
        return _json({"is_draining": False, "left": await self._backend.drain(False)})

    async def _health(self, request: Request) -> Response:
        return _json({"ok": True, "seconds": await self._prober.check()})

    # Records and statistics

    async def _records(self, request: Request) -> Response:
        boot = request.query_params.get("boot", self._journal.boot)
        since, limit = _whole(request, "since", 0), _whole(request, "limit", 1_000, least=1, most=MOST_RECORDS)
        last, is_current = self._journal.last, boot == self._journal.boot
        totals = self._totals.since(since) if is_current and last - since <= limit else None
        page = await asyncio.to_thread(self._page, boot, since, limit, last, totals)
        return Response(page, media_type="application/json")

    def _page(self, boot: str, since: int, limit: int, last: int, totals: Mapping[str, Any] | None) -> bytes:
        """Return a page of the journal. `totals` are the counts at record `last`, for a page that ends there."""
        page = self._journal.since(boot, since, limit, upto=last)
        entries = [entry_document(entry) for entry in page.entries]
        lost_ranges = [asdict(lost_range) for lost_range in page.lost]
        page_fields = {"boot": page.boot, "last": page.last, "entries": entries, "lost": lost_ranges}
        return _encode({**page_fields, "totals": totals if page.last == last else None})

    async def _boots(self, request: Request) -> Response:
        return _json({"boots": [asdict(boot) for boot in self._journal.boots()]})

    async def _cut(self, request: Request) -> Response:
        fields = await _object(request)
        boot, upto = fields.get("boot"), fields.get("upto")
        if fields.keys() != {"boot", "upto"} or not isinstance(boot, str) or type(upto) is not int or upto < 0:
            raise BadRequest("", 'the body must be {"boot": text, "upto": whole number}')
        return _json({"freed_bytes": self._journal.cut(boot, upto)})

    async def _stats(self, request: Request) -> Response:
        journal = {
            "boot": self._journal.boot,
            "size_bytes": self._journal.size_bytes,
            "waiting": self._journal.waiting,
            "dropped_records": self._journal.dropped_records,
            "lost_closings": self._journal.lost_closings,
        }
        agent_fields = {"agent_id": self._agent_id, "is_alone": self._tenants is not None, "address": self._address}
        return _json(
            {**agent_fields, "model": asdict(self._backend.card), **await self._backend.stats(), "journal": journal}
        )

    async def _brief(self, request: Request) -> Response:
        return _json({**await self._backend.brief(), "why": self._journal.look()})

    async def _levels(self, request: Request) -> Response:
        return _json(await self._backend.levels())

    async def _gaps(self, request: Request) -> Response:
        namespaces = request.query_params.getlist("namespace")[:MOST_FORETOLD]
        return _json({"boot": self._journal.boot, "namespaces": await self._backend.foretell(namespaces)})

    async def _get_counters(self, request: Request) -> Response:
        scopes = request.query_params.getlist("scope")[:MOST_SCOPES]
        return _json({"boot": self._journal.boot, "counters": self._counters.of(scopes)})

    async def _set_clock(self, request: Request) -> Response:
        fields = await _object(request)
        offset = fields.get("offset_seconds")
        if fields.keys() != {"offset_seconds"} or not isinstance(offset, int | float) or isinstance(offset, bool):
            raise BadRequest("", 'the body must be {"offset_seconds": number}')
        if not abs(offset) < FARTHEST_SECONDS:
            raise BadRequest("offset_seconds", f"must be less than {FARTHEST_SECONDS:,.0f} either way")
        self._clock.set(float(offset))
        return Response(status_code=204)

    async def _events(self, request: Request) -> Response:
        boot = request.query_params.get("boot", "")
        return _json(await self._backend.events(_whole(request, "since", 0), boot[:64]))

    async def _integrity(self, request: Request) -> Response:
        return _json({"problems": await self._backend.check_integrity()})

    # Access by kind of engine

    def _alone(self) -> LocalTenants:
        if self._tenants is None:
            raise AdminError(
                409, "in_a_fleet", "This engine serves a fleet: the control plane decides this, by a snapshot."
            )
        return self._tenants

    def _check_fleet(self) -> None:
        if self._tenants is not None:
            raise AdminError(
                409, "alone", "This engine is alone: its policy file decides, and SIGHUP has it read again."
            )


async def _body(request: Request, most: int = MOST_BODY_BYTES) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise AdminError(413, "too_large", f"A body of more than {most:,} bytes is not taken.")
    except ClientDisconnect:
        raise AdminError(400, "gone", "The client left before its request was whole.") from None
    return bytes(body)


async def _object(request: Request) -> dict[str, Any]:
    body = await _body(request)
    return await asyncio.to_thread(read_object, body)


def _whole(request: Request, name: str, default: int, *, least: int = 0, most: int = 2**63 - 1) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
        raise BadRequest(name, f"must be a whole number from {least} to {most:,}")
    return int(text)


def _pin_id(request: Request) -> str:
    pin_id: str = request.path_params["id"]
    if not _ID.fullmatch(pin_id):
        raise BadRequest("pin", "must be an id: up to 64 letters, digits, - and _")
    return pin_id


def _json(value: Mapping[str, Any], status: int = 200) -> Response:
    return Response(_encode(value), status, media_type="application/json")


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)
