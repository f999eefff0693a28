"""The gateway as its sidecar sees it: `sidecar.holder.Holder`, implemented in the same process."""

import asyncio
import platform
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine_agent.contracts.protocol import (
    HashMismatch,
    MalformedMessage,
    Snapshot,
    change_apply,
    news_decode,
    snapshot_build,
)
from engine_agent.gateway.engines import Engines
from engine_agent.gateway.held import Held
from engine_agent.gateway.tables import BadTables, Tables, tables_empty, tables_read
from engine_agent.process.version import luminet_version
from engine_agent.sidecar.holder import HolderMismatch, HolderRejected, HolderState, JournalBoot, JournalPage, Proof


def about_gateway(address: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "backend": "gateway",
        "version": luminet_version(),
        "address": address,
        "accelerator": None,
        "models": [],
        "kv_dtypes": [],
        "labels": dict(labels),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


class GatewayHolder:
    """The gateway's interface for its sidecar. `waiting` returns how many requests wait for a seat at an engine."""

    def __init__(
        self, held: Held, engines: Engines, about: Mapping[str, Any], waiting: Callable[[], int] = lambda: 0
    ) -> None:
        self._held, self._engines, self._about, self._waiting = held, engines, about, waiting
        self.share: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot  # reuses parts of the sidecar's copy
        self._boot = uuid.uuid4().hex
        self._applying = asyncio.Lock()

    async def about(self) -> Mapping[str, Any]:
        return self._about

    async def state(self) -> HolderState:
        held = self._held
        told = ("draining" if held.is_draining else "ready") if held.has_snapshot else "starting"
        return HolderState(
            boot=self._boot,
            state=told,
            hash=held.tables.snapshot.hash if held.has_snapshot else None,
            load={"running": self._engines.in_flight, "waiting": self._waiting()},
        )

    async def apply(self, news: bytes) -> str:
        """Parse a snapshot in a thread, so that tokens keep flowing, and apply it in one step. Return its hash."""
        async with self._applying:
            before = self._held.tables
            try:
                tables = await asyncio.to_thread(_read, news, before, self.share)
            except HashMismatch as problem:
                raise HolderMismatch(str(problem)) from problem
            except (MalformedMessage, BadTables) as problem:
                raise HolderRejected(str(problem)) from problem
            self._held.hold(tables)
            return tables.snapshot.hash

    async def proofs(self, boot: str, after: int) -> Sequence[Proof]:
        """Return none: a gateway has no cache."""
        return ()

    async def counters(self, scopes: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return none: only engines count."""
        return {}

    async def operate(self, deed: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if deed in ("drain", "resume"):
            self._held.is_draining = deed == "drain"
            return {"ok": True, "left": self._engines.in_flight + self._waiting()}
        if deed == "integrity":
            problems = await asyncio.to_thread(_problems, self._held.tables)
            return {"ok": True, "problems": problems}
        return {"ok": False, "why": f"a gateway has nothing to do for {deed}"}

    async def pins_wanted(self) -> Sequence[str]:
        return ()

    async def pin_content(self, pin_id: str, content: Mapping[str, Any]) -> None:
        raise HolderRejected("a gateway holds no pins")

    async def set_clock(self, offset_seconds: float) -> None:
        """Do nothing: a gateway reads its sidecar's clock, which is in the same process."""

    async def journal(self) -> Sequence[JournalBoot]:
        """Return none: only engines keep a journal."""
        return ()

    async def journal_page(self, boot: str, after: int, limit: int) -> JournalPage:
        raise HolderRejected("a gateway keeps no journal")

    async def journal_cut(self, boot: str, upto: int) -> None:
        raise HolderRejected("a gateway keeps no journal")

    async def levels(self) -> Mapping[str, Any] | None:
        return None

    async def gaps(self, namespaces: Sequence[str]) -> Mapping[str, Any]:
        return {}


def _read(news: bytes, before: Tables, share: Callable[[Snapshot], Snapshot]) -> Tables:
    told = news_decode(news)
    snapshot = told if isinstance(told, Snapshot) else change_apply(before.snapshot, told)
    return tables_read(share(snapshot), before)


def _problems(tables: Tables) -> list[str]:
    """Rebuild the snapshot and the tables from their parts, and return how they differ from those in use."""
    held = tables.snapshot
    anew = snapshot_build(held.kind, held.entries, held.policies)
    problems = [] if anew.hash == held.hash else [f"the snapshot's hash is {held.hash}, its content's {anew.hash}"]
    meant = tables_read(anew, tables_empty())
    parts = ("organisations", "keys", "engines", "refused", "splits")
    differing = [part for part in parts if getattr(meant, part) != getattr(tables, part)]
    return problems + [f"{part} are not what the snapshot says" for part in differing]
