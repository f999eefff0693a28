"""An agent's end of the door in tests: HTTP straight to the ASGI application, and what agents send by it."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import sync_to_async

from engine_agent.contracts.wire import Batch, Report, batch_encode
from tenants.models import AgentGroup
from tests.database.factories import enrol_agent
from tests.servers.asgi_clients import ask

HASH = "a" * 64


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def told(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error."""
        return str(self.told["error"]["code"])


async def door(
    path: str, *, method: str = "POST", token: str | None = None, body: Any = None, query: str = "", **headers: str
) -> Answered:
    """`path` is below /agent/v1/. Bytes go as they are, everything else as JSON."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        named["authorization"] = f"Bearer {token}"
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return Answered(*await ask(f"/agent/v1/{path}", method=method, headers=named, query=query.encode(), chunks=[data]))


@dataclass(slots=True)
class Sender:
    """An agent that has enrolled and reports. It numbers what it tells as a spool does."""

    agent: str
    token: str
    spool: str = "spool-1"
    number: int = 0
    beats: int = 0

    async def report(self, *reports: Report, heartbeat: Mapping[str, Any] | None = None) -> Answered:
        """What is new."""
        first, self.number = self.number + 1, self.number + len(reports)
        return await self.send(reports, first=first, heartbeat=heartbeat)

    async def send(
        self, reports: Sequence[Report], *, first: int, heartbeat: Mapping[str, Any] | None = None, sent_at: float = 0.0
    ) -> Answered:
        batch = Batch(sent_at, self.spool, first, reports, heartbeat)
        return await door("reports", token=self.token, body=batch_encode(batch))

    async def beat(self, **changes: Any) -> Answered:
        self.beats += 1
        return await self.report(heartbeat=heartbeat_of(self.beats, **changes))


def sender(name: str = "agent-1", *, kind: str = "engine", group: AgentGroup | None = None) -> Sender:
    given = enrol_agent(name, kind=kind, group=group)
    assert given.token is not None
    return Sender(given.agent, given.token)


async def senders(*names: str, **how: Any) -> list[Sender]:
    return [await sync_to_async(sender)(name, **how) for name in names]


async def a_tick(*, count: int = 2) -> None:
    """The door has written down what it heard, and read back how things stand."""
    from controlplane.fleet.desk import TICK_SECONDS

    await asyncio.sleep(count * TICK_SECONDS)


def heartbeat_of(sequence: int, *, boot: str = "boot-1", **changes: Any) -> dict[str, Any]:
    return {
        "boot": boot,
        "sequence": sequence,
        "applied": None,
        "engine": {"boot": "engine-1", "state": "ready", "why": None, "hash": None},
        "load": {"running": 0, "waiting": 0},
        "pool": {"capacity_bytes": 100, "used_bytes": 0},
        "counters": {},
        "spooled": 0,
        **changes,
    }


def applied(generation: int, hash_: str = HASH) -> Report:
    told = {"generation": generation, "hash": hash_, "at": 0.0, "engine_boot": "engine-1", "seconds": 0.01}
    return Report("applied", told)


def rejected(generation: int, reason: str, hash_: str = HASH) -> Report:
    return Report("rejected", {"generation": generation, "hash": hash_, "at": 0.0, "reason": reason})


def purged(namespace: int, blocks: int, *, epoch: int = 2) -> Report:
    told = {"namespace": str(namespace), "epoch": epoch, "blocks": blocks, "bytes": blocks * 1000, "at": 0.0}
    return Report("purged", {**told, "engine_boot": "engine-1"})


def receipt(operation: Any, *, ok: bool = True, **result: Any) -> Report:
    return Report("receipt", {"operation": str(operation), "ok": ok, "at": 0.0, "result": result})


def refused(reason: str, count: int = 1, what: str = "a command") -> Report:
    return Report("refused", {"reason": reason, "what": what, "at": 0.0, "count": count})
