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
        self, state: Held, engines: Engines, about: Mapping[str, Any], waiting: Callable[[], int] = lambda: 0
    ) -> None:
        self._held, self._engines, self._about, self._waiting = state, engines, about, waiting
        self.share: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot  # reuses parts of the sidecar's copy
        self._boot = uuid.uuid4().hex
        self._applying = asyncio.Lock()

    async def about(self) -> Mapping[str, Any]:
        return self._about

    async def state(self) -> HolderState:
        state = self._held
        status = ("draining" if state.is_draining else "ready") if state.has_snapshot else "starting"
        return HolderState(
            boot=self._boot,
            state=status,
            hash=state.tables.snapshot.hash if state.has_snapshot else None,
            load={"running": self._engines.in_flight, "waiting": self._waiting()},
        )

    async def apply(self, news: bytes) -> str:
        """Parse a snapshot in a thread, so that tokens keep flowing, and apply it in one step. Return its hash."""
        async with self._applying:
            previous = self._held.tables
            try:
                tables = await asyncio.to_thread(_read, news, previous, self.share)
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


def _read(news: bytes, previous: Tables, share: Callable[[Snapshot], Snapshot]) -> Tables:
    message = news_decode(news)
    snapshot = message if isinstance(message, Snapshot) else change_apply(previous.snapshot, message)
    return tables_read(share(snapshot), previous)


def _problems(tables: Tables) -> list[str]:
    """Rebuild the snapshot and the tables from their parts, and return how they differ from those in use."""
    snapshot = tables.snapshot
    rebuilt = snapshot_build(snapshot.kind, snapshot.entries, snapshot.policies)
    problems = (
        []
        if rebuilt.hash == snapshot.hash
        else [f"the snapshot's hash is {snapshot.hash}, its content's {rebuilt.hash}"]
    )
    expected_tables = tables_read(rebuilt, tables_empty())
    parts = ("organisations", "keys", "engines", "refused", "splits")
    differing = [part for part in parts if getattr(expected_tables, part) != getattr(tables, part)]
    return problems + [f"{part} are not what the snapshot says" for part in differing]
