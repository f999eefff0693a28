"""`/gateway/…`: an engine's endpoints for the gateways of its fleet: its model, its tokenizer and template, and its
blocks. No other caller is admitted, and a standalone engine has no such paths.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs

from engine_agent.backends.base import Backend
from engine_agent.contracts.block_events import CONTENT_TYPE, MOST_WAIT_SECONDS, events_encode
from engine_agent.contracts.identity import Identity
from engine_agent.http.application import Endpoint
from engine_agent.http.client import Client
from engine_agent.http.errors import ApiError, invalid
from engine_agent.prompts.bundle import Bundle, bundle_encode, bundle_name

BUNDLES = "/gateway/bundles/"
LONGEST_BOOT = 64
MOST_NUMBER = 2**63 - 1
SMALL_PAGE_CHANGES = 256  # encoded in a millisecond


class WatchGuard(Protocol):
    def watching(self, headers: Mapping[str, str], request_id: str) -> Identity:
        """Return the identity of a gateway's own request, or raise an ApiError."""


class GatewayDoor:
    def __init__(self, backend: Backend, bundle: Bundle, guard: WatchGuard, agent_id: str) -> None:
        self._backend, self._guard, self._agent_id = backend, guard, agent_id
        self._source = bundle
        self._bundle: tuple[str, bytes] | None = None
        self._making = asyncio.Lock()
        self.paths: Mapping[str, tuple[str, Endpoint]] = {
            "/gateway/about": ("GET", self._about),
            "/gateway/events": ("GET", self._events),
        }

    async def bundle(self, client: Client, name: str) -> None:
        self._identify(client)
        bundle_name, data = await self._told_bundle()
        if name != bundle_name:
            raise ApiError(404, "There is no such bundle here.", code="not_found")
        headers = [("content-type", "application/json"), ("cache-control", "private, immutable")]
        await client.answer(200, data, headers)

    async def _about(self, client: Client) -> None:
        self._identify(client)
        name, _ = await self._told_bundle()
        boot = str((await self._backend.brief())["boot"])
        await client.answer_json(200, _about(self._backend, self._agent_id, boot=boot, bundle=name))

    async def _events(self, client: Client) -> None:
        self._identify(client)
        query = _Query(client.query)
        boot = query.text("boot", longest=LONGEST_BOOT)
        since, wait = query.whole("since", most=MOST_NUMBER), query.number("wait", most=MOST_WAIT_SECONDS)
        page = await client.staying(self._backend.block_page(boot, since, wait_seconds=wait))
        if len(page.changes) <= SMALL_PAGE_CHANGES:
            data = events_encode(page)
        else:
            data = await asyncio.to_thread(events_encode, page)
        await client.answer(200, data, [("content-type", CONTENT_TYPE), ("cache-control", "no-store")])

    def _identify(self, client: Client) -> None:
        client.is_for_browsers = False
        self._guard.watching(client.headers, client.request_id)

    async def _told_bundle(self) -> tuple[str, bytes]:
        """Return the bundle's name and bytes, encoded once, for the first gateway."""
        async with self._making:
            if self._bundle is None:
                data = await asyncio.to_thread(bundle_encode, self._source)
                self._bundle = (await asyncio.to_thread(bundle_name, data), data)
            return self._bundle


def _about(backend: Backend, agent_id: str, *, boot: str, bundle: str) -> dict[str, Any]:
    """Return the facts that are constant during a boot. Blocks are counted in the first format."""
    card = backend.card
    return {
        "agent": agent_id,
        "boot": boot,
        "model": card.name,
        "revision": card.revision,
        "created": card.created,
        "context_tokens": card.context_tokens,
        "vocab_size": card.vocab_size,
        "block_tokens": card.block_tokens,
        "kv_dtypes": list(card.kv_dtypes),
        "scale_sets": dict(backend.scale_sets),
        "bundle": bundle,
        "seats": backend.seats,
        "pool_blocks": card.pool_bytes // card.block_bytes[card.kv_dtypes[0]],
    }


class _Query:
    """A request's query parameters, all optional. Raises ApiError, which names the parameter."""

    def __init__(self, query: bytes) -> None:
        try:
            self._found = parse_qs(query.decode("ascii"), strict_parsing=bool(query), max_num_fields=8)
        except ValueError:
            raise invalid(None, "The query of the address cannot be read.") from None

    def text(self, name: str, *, longest: int) -> str:
        text = self._found.get(name, [""])[-1]
        if len(text) > longest:
            raise invalid(name, f"is longer than {longest} characters")
        return text

    def whole(self, name: str, *, most: int) -> int:
        text = self._found.get(name, ["0"])[-1]
        if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= most):
            raise invalid(name, f"must be a whole number from 0 to {most}")
        return int(text)

    def number(self, name: str, *, most: float) -> float:
        try:
            seconds = float(self._found.get(name, ["0"])[-1])
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= most:
            raise invalid(name, f"must be a number of seconds from 0 to {most:g}")
        return seconds
