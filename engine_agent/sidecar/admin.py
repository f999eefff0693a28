"""Implement `holder.Holder` on an engine's admin API, which listens on a Unix socket or a loopback port."""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

from engine_agent.journal.records import entry_read
from engine_agent.process.last_words import last_words_take
from engine_agent.process.version import luminet_version
from engine_agent.sidecar.holder import (
    HolderAway,
    HolderMismatch,
    HolderRejected,
    HolderState,
    JournalBoot,
    JournalPage,
    Proof,
)

TIMEOUT = aiohttp.ClientTimeout(total=10, connect=2)
SLOW_TIMEOUT = aiohttp.ClientTimeout(total=60, connect=2)
# The engine understood the request and would refuse it again; every other status is worth a retry.
REJECTED = (400, 404, 413, 422)
NEVER_APPLIED = ("malformed", "rejected")  # error codes that reject a snapshot finally
JOURNAL_BOOT = ("boot", "last", "size_bytes", "is_current")
LONGEST_WHY = 400
PATHS = {"drain": "/drain", "resume": "/resume", "integrity": "/integrity"}


@dataclass(frozen=True, slots=True)
class EngineFace:
    """The address of an engine's admin API."""

    socket: Path | None
    port: int = 0
    token: str | None = field(default=None, repr=False)  # only needed with a port


@dataclass(frozen=True, slots=True)
class Advertised:
    """Settings of this machine that the operator sets and the agent reports."""

    address: str | None = None  # where gateways reach the engine; None: the address at which the engine says it listens
    labels: Mapping[str, str] = field(default_factory=dict)


class AdminHolder:
    """The client of one engine's admin API. Use and close it in one event loop."""

    def __init__(self, face: EngineFace, advertised: Advertised, *, words_in: Path | None = None) -> None:
        """If another program runs the engine, `words_in` is the folder in which it leaves its exit reason."""
        self._face, self._advertised, self._words_in = face, advertised, words_in
        self._is_heard = False
        self._session: aiohttp.ClientSession | None = None
        self._offset_seconds = 0.0
        self.why_away = ""  # a clearer reason than the socket's error for an engine that does not answer

    def has_answered(self) -> bool:
        """Return whether the engine has answered since `say_why_away` was last called."""
        return not self.why_away

    def say_why_away(self, why: str) -> None:
        self.why_away = why

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def about(self) -> Mapping[str, Any]:
        stats = await self._ask("GET", "/stats")
        with _read("/stats"):
            return self._about(stats)

    def _about(self, stats: Mapping[str, Any]) -> Mapping[str, Any]:
        card = stats["model"]
        model = {name: card[name] for name in ("name", "revision", "kv_dtypes", "context_tokens")}
        return {
            # Older engines report neither; they are always our own.
            "backend": card.get("backend", "paged"),
            "backend_version": card.get("backend_version", ""),
            "version": luminet_version(),
            "address": self._advertised.address or stats["address"],
            "accelerator": card["accelerator"],
            "models": [model],
            "kv_dtypes": card["kv_dtypes"],
            "computed_as": card.get("computed_as", {}),
            "enforcement": card.get("enforcement", {}),  # an older engine declares nothing
            "pool": {
                "capacity_bytes": stats["pool"]["capacity_bytes"],
                "block_tokens": card["block_tokens"],
                "block_bytes": card["block_bytes"],
            },
            "labels": dict(self._advertised.labels),
            "python": platform.python_version(),
            "platform": platform.platform(),
        }

    async def state(self) -> HolderState:
        answer = await self._ask("GET", "/brief")
        with _read("/brief"):
            pool = answer["pool"]
            return HolderState(
                boot=str(answer["boot"]),
                state="draining" if answer["is_draining"] else "ready",
                why=str(answer.get("why", ""))[:LONGEST_WHY],  # older engines omit it
                hash=answer["snapshot_hash"],
                load={"running": int(answer["running"]), "waiting": int(answer["waiting"])},
                pool={"capacity_bytes": int(pool["capacity_bytes"]), "used_bytes": int(pool["used_bytes"])},
            )

    async def apply(self, news: bytes) -> str:
        """Apply a snapshot or change. Raise HolderRejected only if a retry cannot succeed."""
        answer = await self._ask("POST", "/apply", news, within=SLOW_TIMEOUT, rejected=NEVER_APPLIED)
        with _read("/apply"):
            return str(answer["hash"])

    async def proofs(self, boot: str, after: int) -> Sequence[Proof]:
        try:
            answer = await self._ask("GET", f"/receipts?{urlencode({'boot': boot, 'after': after})}")
        except HolderRejected:  # the engine never issued that number: our mark comes from a restored copy
            answer = await self._ask("GET", "/receipts")
        with _read("/receipts"):
            return self._proofs(answer)

    def _proofs(self, answer: Mapping[str, Any]) -> list[Proof]:
        return [
            Proof(
                boot=answer["boot"],
                number=receipt["number"],
                namespace=receipt["namespace"],
                epoch=receipt["epoch"],
                blocks=receipt["blocks"],
                bytes=receipt["bytes"],
                at=receipt["at"] + self._offset_seconds,
                is_final=receipt["is_done"],
            )
            for receipt in answer["receipts"]
        ]

    async def counters(self, scopes: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        answer = await self._ask("GET", f"/counters?{urlencode([('scope', scope) for scope in scopes])}")
        with _read("/counters"):
            counters: Mapping[str, Mapping[str, Any]] = answer["counters"]
            return counters

    async def operate(self, action: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if action in PATHS:
            return await self._ask("POST", PATHS[action], within=SLOW_TIMEOUT)
        if action == "warm_pins":
            return {"pins": await self._pins()}
        return {"ok": False, "why": f"an engine cannot {action}"}

    async def pins_wanted(self) -> Sequence[str]:
        return [name for name, state in (await self._pins()).items() if state == "content_missing"]

    async def _pins(self) -> dict[str, str]:
        answer = await self._ask("GET", "/pins")
        with _read("/pins"):
            return {str(pin["id"]): str(pin["state"]) for pin in answer["pins"]}

    async def pin_content(self, pin_id: str, content: Mapping[str, Any]) -> None:
        await self._ask("PUT", f"/pins/{pin_id}/content", json.dumps(content).encode(), within=SLOW_TIMEOUT)

    async def set_clock(self, offset_seconds: float) -> None:
        self._offset_seconds = offset_seconds
        await self._ask("PUT", "/clock", json.dumps({"offset_seconds": offset_seconds}).encode())

    async def journal(self) -> Sequence[JournalBoot]:
        answer = await self._ask("GET", "/journal/boots")
        with _read("/journal/boots"):
            return [JournalBoot(**{name: boot[name] for name in JOURNAL_BOOT}) for boot in answer["boots"]]

    async def journal_page(self, boot: str, after: int, limit: int) -> JournalPage:
        answer = await self._ask("GET", f"/journal?{urlencode({'boot': boot, 'since': after, 'limit': limit})}")
        with _read("/journal"):
            entries = [entry_read(entry) for entry in answer["entries"]]
            lost = [(lost_range["first"], lost_range["last"]) for lost_range in answer["lost"]]
            return JournalPage(answer["last"], entries, lost, answer.get("totals"))

    async def journal_cut(self, boot: str, upto: int) -> None:
        await self._ask("POST", "/journal/cut", json.dumps({"boot": boot, "upto": upto}).encode())

    async def levels(self) -> Mapping[str, Any]:
        return await self._ask("GET", "/levels")

    async def gaps(self, namespaces: Sequence[str]) -> Mapping[str, Any]:
        query = urlencode([("namespace", namespace) for namespace in namespaces])
        return await self._ask("GET", f"/gaps?{query}", within=SLOW_TIMEOUT)

    def _last_words(self) -> str:
        return last_words_take(self._words_in) if self._words_in else ""

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        within: aiohttp.ClientTimeout = TIMEOUT,
        rejected: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Send a request.

        `rejected` lists the only error codes that raise HolderRejected; if empty, its status decides.
        """
        try:
            async with self._open().request(method, self._base + path, data=body, timeout=within) as answer:
                content = await answer.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as problem:
            self._is_heard = False
            if exit_reason := self._last_words():
                self.why_away = f"the engine ended: {exit_reason}"
            raise HolderAway(self.why_away or f"the engine does not answer: {type(problem).__name__}") from None
        if not self._is_heard:
            self._last_words()  # discard the exit reason of an earlier engine
        self._is_heard, self.why_away = True, ""  # if the engine ends later, its supervisor gives the reason
        if answer.status < 300:
            with _read(path):
                return dict(json.loads(content)) if content else {}
        raise _refusal(answer.status, content, rejected)

    @property
    def _base(self) -> str:
        return "http://engine" if self._face.socket else f"http://127.0.0.1:{self._face.port}"

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            face = self._face
            connector: aiohttp.BaseConnector = (
                aiohttp.UnixConnector(str(face.socket)) if face.socket else aiohttp.TCPConnector()
            )
            headers = {"content-type": "application/json"}
            headers |= {"authorization": f"Bearer {face.token}"} if face.token else {}
            self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        return self._session


@contextmanager
def _read(path: str) -> Iterator[None]:
    """Raise HolderAway if the engine's answer is malformed."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise HolderAway(f"the engine's answer to {path[:80]} lacks or spoils {problem}"[:300]) from None


def _refusal(status: int, content: bytes, rejected: Sequence[str]) -> HolderAway | HolderMismatch | HolderRejected:
    try:
        error = json.loads(content)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        return HolderAway(f"the engine answered {status}")
    if code == "hash_mismatch":
        return HolderMismatch(message)
    if not (code in rejected if rejected else status in REJECTED):
        return HolderAway(f"{message} ({status} {code})")
    where = f"{error['entry']}: " if error.get("entry") else ""
    return HolderRejected(f"{where}{error.get('problem') or message}")
