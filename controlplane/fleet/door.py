"""The agent API, `/agent/v1/…`: agents enrol, fetch their snapshots and report. It runs in front of Django because
agents call it so often.

The token alone identifies an agent; no request can name another one. An error has a code for programs and a sentence
for people, and makes one log line and one count. Internal details are never sent to the agent.
"""

import asyncio
import gzip
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from controlplane.common.metrics import agent_heartbeats, agent_reports, agent_reports_lost, agent_requests
from controlplane.fleet.arrivals import numbers_check
from controlplane.fleet.desk import Desk, Watched
from controlplane.fleet.enrolment import Credentials, agent_for_token, credentials, enrol
from controlplane.fleet.errors import AgentRefused, BrokerAway, Revoked, TooMuchWaits, UnknownToken
from controlplane.fleet.heartbeats import Beat
from controlplane.fleet.intake import is_absurd
from controlplane.fleet.known_agents import AgentNow
from controlplane.fleet.pins import pin_told
from controlplane.fleet.recording import RefusedRows, Stored, Usage
from controlplane.fleet.requests import (
    CHALLENGE,
    SMALL_BYTES,
    Answer,
    Members,
    Receive,
    Refused,
    Scope,
    Send,
    bearer,
    body_read,
    body_unpacked,
    header,
    json_answer,
    object_read,
    query_value,
    send_answer,
    storable,
)
from controlplane.fleet.serving import DesiredSnapshot, SnapshotNotPlanned
from engine_agent.contracts.protocol import MalformedMessage, canonical_json
from engine_agent.contracts.wire import Batch, batch_decode

log = logging.getLogger("luminet.fleet")

PREFIX = "/agent/v1/"
AGAIN_SECONDS = 1  # the Retry-After of a temporary refusal
SMALLEST_PACKED_BYTES = 1_024
STATUSES = {"malformed": 400, "name_taken": 409}  # by code of AgentRefused; every other is 403
Application = Callable[[Any, Any, Any], Awaitable[None]]
Snapshots = Callable[[str], DesiredSnapshot]
Endpoint = Callable[["AgentDoor", Scope, Receive], Awaitable[Answer]]
_NONE: RefusedRows = ()


class AgentDoor:
    """The ASGI application of the agent API, in front of `inner`.

    `snapshots` returns an agent's desired snapshot, `watched` the scopes that all agents count; `usage` adds up what
    they count, in the transaction that stores their reports. All may query the database.
    """

    def __init__(
        self, inner: Application, *, snapshots: Snapshots, watched: Watched, usage: Usage | None = None
    ) -> None:
        self._inner = inner
        self._snapshots = snapshots
        self._watched, self._usage = watched, usage
        self._loop: asyncio.AbstractEventLoop | None = None
        self._packed: tuple[str, bytes] = ("", b"")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith(PREFIX):
            await self._inner(scope, receive, send)
            return
        purpose = scope["path"][len(PREFIX) :].partition("/")[0]
        purpose = purpose if purpose in _ENDPOINTS else "unknown"
        answer = await self._answered(purpose, scope, receive)
        agent_requests.labels(purpose, answer.code).inc()
        await send_answer(scope, send, answer)

    async def _answered(self, purpose: str, scope: Scope, receive: Receive) -> Answer:
        try:
            return await _endpoint(purpose, scope)(self, scope, receive)
        except Refused as refused:
            error = refused
        except UnknownToken as unknown:
            error = Refused(401, unknown.code, str(unknown), headers=CHALLENGE)
        except AgentRefused as refusal:
            error = Refused(STATUSES.get(refusal.code, 403), refusal.code, str(refusal))
        except MalformedMessage as malformed:
            error = Refused(400, "malformed", str(malformed))
        except SnapshotNotPlanned as unavailable:
            error = _unavailable(str(unavailable))
        except TooMuchWaits as queue_full:
            error = _unavailable("so much waits to be written that nothing more is taken; ask again", why=queue_full)
        except (OperationalError, InterfaceError, BrokerAway) as unavailable:
            error = _unavailable("the control plane cannot do this now; ask again", why=unavailable)
        except Exception:
            log.exception("an agent's request failed", extra={"for": purpose, "client": _client(scope)})
            return Refused(500, "internal", "something went wrong here; it is in the control plane's log").answer()
        fields = {"for": purpose, "code": error.code, "why": error.why or error.message, "client": _client(scope)}
        log.warning("agent refused", extra=fields)
        return error.answer()

    @property
    def _desk(self) -> Desk:
        """Return the `Desk` of the running event loop; a server keeps one loop for life."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._desk_of_loop = loop, Desk(self._watched, self._usage)
        return self._desk_of_loop

    # Endpoints

    async def enrol(self, scope: Scope, receive: Receive) -> Answer:
        optional_text = (str, type(None))
        members: Members = {"token": str, "kind": str, "name": optional_text, "about": dict}
        fields = object_read(await body_read(scope, receive, limit=SMALL_BYTES), members)
        issued_credentials = await self._desk.in_database(enrol, **fields, now=timezone.now(), address=_client(scope))
        return json_answer(201, issued_credentials.as_json())

    async def credentials(self, scope: Scope, receive: Receive) -> Answer:
        token = bearer(scope)
        fields = object_read(await body_read(scope, receive, limit=SMALL_BYTES), {"rotate": bool})
        issued_credentials = await self._desk.in_database(_credentials, token, rotate=fields["rotate"])
        return json_answer(200, issued_credentials.as_json())

    async def snapshot(self, scope: Scope, receive: Receive) -> Answer:
        agent = await self._desk.identified(bearer(scope))
        desired = await self._desk.in_database(self._snapshots, agent.id)
        headers = {"x-luminet-generation": str(desired.generation), "x-luminet-snapshot": desired.hash}
        if query_value(scope, "have") == desired.hash:
            return Answer(304, headers=headers, code="not_modified")
        body = desired.body
        if "gzip" in header(scope, b"accept-encoding") and len(body) >= SMALLEST_PACKED_BYTES:
            headers["content-encoding"] = "gzip"
            body = await asyncio.to_thread(self._pack, desired)
        return Answer(200, body, headers)

    def _pack(self, desired: DesiredSnapshot) -> bytes:
        """Compress the snapshot and remember it: a group's agents fetch the same one in succession."""
        hash_, packed = self._packed
        if hash_ != desired.hash:
            packed = gzip.compress(desired.body, compresslevel=1, mtime=0)
            self._packed = (desired.hash, packed)
        return packed

    async def pins(self, scope: Scope, receive: Receive) -> Answer:
        agent = await self._desk.identified(bearer(scope))
        pin_id = scope["path"][len(PREFIX) :].partition("/")[2]
        pin = await self._desk.in_database(pin_told, agent, pin_id, now=timezone.now())
        if pin is None:
            raise Refused(404, "not_found", "there is no such pin for this agent")
        return json_answer(200, pin)

    async def reports(self, scope: Scope, receive: Receive) -> Answer:
        dispatcher = self._desk
        agent = await dispatcher.identified(bearer(scope))
        body = await body_read(scope, receive)
        if len(body) > SMALL_BYTES or header(scope, b"content-encoding"):  # much work must not block other requests
            body, batch = await asyncio.to_thread(_unpacked, scope, body, agent)
        else:
            batch = _batch(body, agent)
        now = timezone.now()
        if batch.heartbeat is not None:
            agent_heartbeats.inc()
            dispatcher.heard(Beat(agent.id, batch.heartbeat, now, batch.sent_at - now.timestamp()))
        acknowledged, refused_rows = (agent.number if agent.spool == batch.spool else 0), _NONE
        journal: Mapping[str, int] = {}
        if batch.reports:
            stored = await dispatcher.reported(agent.id, batch, size=len(body))
            if stored is None:
                raise Revoked(agent.id)
            acknowledged, refused_rows = stored.intake.arrival.acknowledged, stored.refused_rows
            journal = stored.journal
            _counted(agent, batch, stored)
        return json_answer(
            200, _told(dispatcher, dispatcher.now_known(agent), acknowledged, refused_rows) | {"journal": journal}
        )


_ENDPOINTS: dict[str, tuple[str, Endpoint]] = {
    "enrol": ("POST", AgentDoor.enrol),
    "credentials": ("POST", AgentDoor.credentials),
    "snapshot": ("GET", AgentDoor.snapshot),
    "pins": ("GET", AgentDoor.pins),
    "reports": ("POST", AgentDoor.reports),
}


def _endpoint(purpose: str, scope: Scope) -> Endpoint:
    rest = scope["path"][len(PREFIX) :].partition("/")[2]
    if purpose not in _ENDPOINTS or bool(rest) != (purpose == "pins"):
        raise Refused(404, "not_found", "there is no such path")
    method, endpoint = _ENDPOINTS[purpose]
    if scope["method"] != method:
        raise Refused(405, "method", f"{purpose} takes {method} only", headers={"allow": method})
    return endpoint


def _unavailable(message: str, *, why: Exception | None = None) -> Refused:
    headers = {"retry-after": str(AGAIN_SECONDS)}
    return Refused(503, "unavailable", message, headers=headers, why=type(why).__name__ if why else "")


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _credentials(token: str, *, rotate: bool) -> Credentials:
    now = timezone.now()
    return credentials(agent_for_token(token, now), rotate=rotate, now=now)


def _unpacked(scope: Scope, body: bytes, agent: AgentNow) -> tuple[bytes, Batch]:
    unpacked = body_unpacked(scope, body)
    return unpacked, _batch(unpacked, agent)


def _batch(body: bytes, agent: AgentNow) -> Batch:
    batch = batch_decode(storable(body))
    numbers_check(batch)
    if len(body) > SMALL_BYTES and batch.heartbeat and len(canonical_json(dict(batch.heartbeat))) > SMALL_BYTES:
        raise MalformedMessage("heartbeat", f"is larger than {SMALL_BYTES} bytes")
    applied = batch.heartbeat["applied"] if batch.heartbeat else None
    if applied is not None and is_absurd(applied["generation"], desired=agent.desired_generation):
        raise MalformedMessage("heartbeat.applied.generation", "is beyond any that this agent can have been told")
    return batch


def _told(dispatcher: Desk, agent: AgentNow, acknowledged: int, refused_rows: RefusedRows) -> dict[str, Any]:
    desired = {"hash": agent.desired_hash, "generation": agent.desired_generation} if agent.desired_hash else None
    return {
        "acknowledged": acknowledged,
        "refused_rows": list(refused_rows),
        "desired": desired,
        "cadence_seconds": dispatcher.cadence_seconds,
        "now": timezone.now().timestamp(),
        "watch": dispatcher.watched,
    }


def _counted(agent: AgentNow, batch: Batch, stored: Stored) -> None:
    arrival, dropped = stored.intake.arrival, stored.intake.facts.dropped
    for reports, status in ((batch.reports[: arrival.seen], "repeated"), (arrival.fresh, "new")):
        for report in reports:
            agent_reports.labels(report.kind, status).inc()
    for ignored_report in dropped:
        agent_reports.labels(ignored_report.partition(":")[0], "ignored").inc()
    if arrival.lost:
        agent_reports_lost.inc(arrival.lost)
    if stored.refused_rows:
        first = stored.refused_rows[0]
        fields = {"agent": agent.id, "rows": len(stored.refused_rows), "first": dict(first)}
        log.warning("rows that an agent told are not counted", extra=fields)
    if dropped or arrival.lost:
        fields = {"agent": agent.id, "lost": arrival.lost, "ignored": dropped[:5]}
        log.warning("reports of an agent are missing or mean nothing", extra=fields)
