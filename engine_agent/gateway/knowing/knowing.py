"""The interface of this package: a request's prompt, how much of it each engine has cached, and each engine's load."""

import asyncio
import contextlib
import logging
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path

import aiohttp

from engine_agent.contracts.block_events import MARK_BYTES, Load
from engine_agent.gateway.asked import Asked
from engine_agent.gateway.keys import Caller
from engine_agent.gateway.knowing.bundles import Bundles
from engine_agent.gateway.knowing.chains import Ground
from engine_agent.gateway.knowing.index import Index
from engine_agent.gateway.knowing.metrics import KnowingMetrics
from engine_agent.gateway.knowing.prompts import Asking, Prompt, Prompting
from engine_agent.gateway.knowing.watching import Follower
from engine_agent.gateway.tables import Engine, Namespace
from engine_agent.http.extra_body import read_request

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.25  # time between two updates of the set of engines
LONGEST_SALT = 256  # bytes, the limit of engines
KEY_BYTES = 32
INLINE_BYTES = 8_192  # a body of this size is always read in the event loop


class Knowing:
    """The prefix index. `run` follows the engines; all other methods use what is known by then."""

    def __init__(
        self,
        engines: Callable[[], Mapping[str, Engine]],
        session: aiohttp.ClientSession,
        now: Callable[[], float],
        home: Path | None = None,
    ) -> None:
        self._engines, self._session, self._now = engines, session, now
        self._bundles, self._index = Bundles(home), Index()
        self._followers: dict[str, Follower] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._grounds: dict[tuple[str, str], Mapping[str, Ground]] = {}
        self.metrics = KnowingMetrics(lambda: self._index.blocks, self._all_heard)
        self._prompting = Prompting(self.metrics.tokenising)
        self.on_prompt: Callable[[Namespace, array[int], bool], None] | None = None  # samples prompts

    # Requests

    async def prompt(self, caller: Caller, request: Asked, path: str) -> Prompt | None:
        """Return the request's prompt, or None if no engine reports a cache for it, or it cannot be rendered here."""
        began = time.perf_counter()
        prompt_request = self._asking(caller, request, path)
        prompt = None if prompt_request is None else await self._read(prompt_request)
        outcome = "unread" if prompt is None else "whole" if prompt.is_whole else "head"
        self.metrics.read(outcome, time.perf_counter() - began)  # type: ignore[arg-type]
        if prompt is not None and prompt.is_only and self.on_prompt is not None:
            is_all = prompt.is_whole and prompt.known_tokens == len(prompt.tokens)
            self.on_prompt(caller.namespace, prompt.tokens, is_all)
        return prompt

    async def _read(self, prompt_request: Asking) -> Prompt | None:
        try:
            return await self._prompting.read(prompt_request)
        except Exception:  # a tokenizer's or template's error: the engine may still serve the request
            log.exception("a prompt of model %s could not be read", prompt_request.model)
            return None

    def matches(self, prompt: Prompt) -> Mapping[str, int]:
        """Return the matched tokens, for each engine that reports its cache."""
        return {
            agent: self._match(agent, chain_key, prompt)
            for agent, chain_key in self._all_grounds(prompt.model, prompt.kv_format).items()
            if chain_key in prompt.chains
        }

    # Engines

    def load(self, agent: str) -> Load | None:
        follower = self._followers.get(agent)
        return None if follower is None else follower.load

    def seats(self, agent: str) -> int | None:
        follower = self._followers.get(agent)
        return follower.about.seats if follower and follower.about else None

    def heard(self, agent: str) -> bool:
        follower = self._followers.get(agent)
        return follower is not None and follower.is_heard

    async def run(self) -> None:
        try:
            await self._prompting.warm()
            while True:
                self._keep(self._engines())
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._keep({})
            self._prompting.close()

    def _keep(self, engines: Mapping[str, Engine]) -> None:
        """Follow exactly these engines, at their current addresses, and forget all others."""
        for agent, follower in list(self._followers.items()):
            engine = engines.get(agent)
            if engine is None or (engine.address, engine.secret) != (follower.engine.address, follower.engine.secret):
                self._following.pop(agent).cancel()
                self._followers.pop(agent).forget()
                with contextlib.suppress(KeyError):
                    self.metrics.forget(agent)
        for agent in engines.keys() - self._followers.keys():
            follower = Follower(
                engines[agent],
                self._session,
                self._bundles,
                self._index,
                self._now,
                changed=self._grounds.clear,
                gap=self.metrics.gap,
            )
            self._followers[agent], self._following[agent] = follower, asyncio.create_task(follower.run())

    # Helpers

    def _asking(self, caller: Caller, request: Asked, path: str) -> Asking | None:
        namespace = caller.namespace
        kv_format = request.kv_dtype or namespace.rules.of(request.model).kv_dtype
        chain_keys = set(self._all_grounds(request.model, kv_format).values())
        body = request.told or read_request(request.body)
        salt = _salt(body.get("cache_salt"))
        # There are several bundles while a model is replaced: use one.
        bundle = min((chain_key.bundle for chain_key in chain_keys), default="")
        loaded = self._bundles.get(bundle)
        if loaded is None or salt is None or len(namespace.key) != KEY_BYTES:
            return None
        roots = {chain_key: chain_key.root(namespace, salt) for chain_key in chain_keys if chain_key.bundle == bundle}
        is_light = request.is_light and not isinstance(body.get("prompt"), list)  # token ids are many values
        return Asking(
            body, is_light or len(request.body) <= INLINE_BYTES, path, request.model, kv_format, loaded, roots
        )

    def _all_grounds(self, model: str, kv_format: str) -> Mapping[str, Ground]:
        """Return the `Ground` of this model and format, by agent."""
        chain_keys = self._grounds.get((model, kv_format))
        if chain_keys is None:
            descriptions = {agent: follower.about for agent, follower in self._followers.items() if follower.about}
            chain_keys = {
                agent: description.grounds[kv_format]
                for agent, description in descriptions.items()
                if description.model == model and kv_format in description.grounds
            }
            if chain_keys:  # a miss is not cached: clients may name anything
                self._grounds[model, kv_format] = chain_keys
        return chain_keys

    def _match(self, agent: str, chain_key: Ground, prompt: Prompt) -> int:
        marked = prompt.chains[chain_key]
        matchable_blocks = prompt.matchable(chain_key) // chain_key.block_tokens
        return (
            self._index.match(agent, marked.root, marked.marks[: matchable_blocks * MARK_BYTES])
            * chain_key.block_tokens
        )

    def _all_heard(self) -> Mapping[str, bool]:
        return {agent: follower.is_heard for agent, follower in self._followers.items()}


def _salt(cache_salt: object) -> bytes | None:
    """Return the salt, or None if an engine would refuse it."""
    if cache_salt is None:
        return b""
    if not isinstance(cache_salt, str):
        return None
    salt = cache_salt.encode(errors="replace")
    return salt if 1 <= len(salt) <= LONGEST_SALT else None
