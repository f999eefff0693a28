"""Follows one engine: its description, its bundle, and page by page the blocks in its cache.

After an answer, it asks again at once, otherwise after a pause. If an engine cannot be asked any more, its blocks are
forgotten at once: a cache that may be gone is no reason to route a request there.
"""

import asyncio
import json
import logging
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from engine_agent.contracts.block_events import MOST_PAGE_BYTES, BadPage, Load, Page, events_decode
from engine_agent.contracts.identity import FLEET, HEADER, LIFETIME_SECONDS, WATCH, Identity, sign
from engine_agent.gateway.knowing.bundles import BadBundleFetched, Bundles
from engine_agent.gateway.knowing.chains import Ground
from engine_agent.gateway.knowing.index import Index
from engine_agent.gateway.tables import Engine
from engine_agent.prompts.bundle import MOST_BUNDLE_BYTES

log = logging.getLogger(__name__)
WAIT_SECONDS = 1.0  # how long an engine may wait for news before it answers: its reported load is never older
PATIENCE_SECONDS = 10.0  # time limit of an answer, in addition to that wait
FIRST_PAUSE, MOST_PAUSE = 0.25, 15.0
MOST_ABOUT_BYTES = 1 << 20
_NAME = re.compile(r"[0-9a-f]{64}")


class Unheard(Exception):
    """The engine did not answer, or its answer cannot be used."""


@dataclass(frozen=True, slots=True)
class About:
    """An engine's description. Unknown fields are ignored: they are for newer gateways."""

    model: str
    boot: str
    bundle: str
    seats: int
    grounds: Mapping[str, Ground]  # by KV format

    @classmethod
    def read(cls, fields: Any) -> "About":
        """Raise Unheard if the description is invalid."""
        try:
            bundle, block_tokens, scales = (
                str(fields["bundle"]),
                int(fields["block_tokens"]),
                fields.get("scale_sets", {}),
            )
            if not _NAME.fullmatch(bundle) or not 1 <= block_tokens <= 4_096:
                raise ValueError
            grounds = {
                str(name): Ground(bundle, str(fields["revision"]), str(name), str(scales.get(name, "")), block_tokens)
                for name in fields["kv_dtypes"]
            }
            return cls(str(fields["model"]), str(fields["boot"]), bundle, int(fields.get("seats", 0)), grounds)
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise Unheard("what it says of itself makes no sense") from problem


class Follower:
    def __init__(
        self,
        engine: Engine,
        session: aiohttp.ClientSession,
        bundles: Bundles,
        index: Index,
        now: Callable[[], float],
        *,
        changed: Callable[[], None],
        gap: Callable[[str], None],
    ) -> None:
        self.engine, self._session, self._bundles, self._index, self._now = engine, session, bundles, index, now
        self._changed, self._gap = changed, gap
        self.about: About | None = None  # None while the engine does not answer
        self.load: Load | None = None
        self._boot, self._number = "", 0

    @property
    def is_heard(self) -> bool:
        return self.about is not None

    async def run(self) -> None:
        pause, last_reason = FIRST_PAUSE, ""
        while True:
            try:
                await self._follow()
            except (aiohttp.ClientError, TimeoutError, OSError, Unheard, BadPage, BadBundleFetched) as problem:
                reason = str(problem) or type(problem).__name__
                if reason != last_reason:
                    log.info("engine %s does not tell what it holds: %s", self.engine.agent, reason)
                pause = FIRST_PAUSE if self.is_heard else min(2 * pause, MOST_PAUSE)
                last_reason = reason
            finally:
                self.forget()
            await asyncio.sleep(pause)

    def forget(self) -> None:
        self._index.forget(self.engine.agent)
        self.about = self.load = None
        self._boot, self._number = "", 0
        self._changed()

    async def _follow(self) -> None:
        """Follow the engine until it restarts or an answer cannot be used."""
        description = About.read(await self._json("/gateway/about"))
        await self._bundles.ensure(description.bundle, self._bundle)
        while True:
            # At first do not wait for news, so that the cache is known soon.
            wait_seconds = WAIT_SECONDS if self.is_heard else 0
            page = await self._page(wait_seconds)
            if page.boot != description.boot:
                return
            await self._take(page)
            if page.is_whole and not self.is_heard:
                self.about = description
                self._changed()

    async def _take(self, page: Page) -> None:
        if page.is_snapshot and self._number:
            self._gap(self.engine.agent)
        for _ in self._index.changing(self.engine.agent, page):
            await asyncio.sleep(0)
        self._boot, self._number, self.load = page.boot, page.number, page.load

    # Requests to the engine

    async def _page(self, wait_seconds: float) -> Page:
        path = f"/gateway/events?boot={self._boot}&since={self._number}&wait={wait_seconds:g}"
        return events_decode(await self._bytes(path, MOST_PAGE_BYTES, wait_seconds + PATIENCE_SECONDS))

    async def _bundle(self, name: str) -> bytes:
        return await self._bytes(f"/gateway/bundles/{name}", MOST_BUNDLE_BYTES, 60.0)

    async def _json(self, path: str) -> Any:
        data = await self._bytes(path, MOST_ABOUT_BYTES, PATIENCE_SECONDS)
        try:
            return json.loads(data)
        except ValueError as problem:
            raise Unheard(f"{path}: no JSON") from problem

    async def _bytes(self, path: str, most: int, seconds: float) -> bytes:
        url, headers = f"{self.engine.address}{path}", {HEADER: self._identity()}
        async with (
            asyncio.timeout(seconds),
            self._session.get(url, headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise Unheard(f"{path.partition('?')[0]}: {answer.status}")
            parts, size = [], 0
            async for part in answer.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > most:
                    raise Unheard(f"{path.partition('?')[0]}: more than {most:,} bytes")
        return b"".join(parts)

    def _identity(self) -> str:
        """Sign the gateway's own identity, because it asks for itself and not for a request."""
        now = self._now()
        identity = Identity(
            organisation_id=FLEET,
            organisation=FLEET,
            namespace_id=FLEET,
            namespace=FLEET,
            scope=WATCH,
            policy_revision=0,
            request_id=f"watch-{uuid.uuid4().hex}",
            attempt=1,
            kind="customer",
            deadline=None,
            issued_at=now,
            expires_at=now + LIFETIME_SECONDS,
            audience=self.engine.agent,
        )
        return sign(identity, self.engine.secret)
