"""The gateway's bundles (tokenizer and template), by hash: fetched from engines, stored on disk, a few in memory."""

import asyncio
import contextlib
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine_agent.gateway.knowing.cutting import Cutter
from engine_agent.prompts.bundle import Bundle, bundle_name, bundle_read

log = logging.getLogger(__name__)
MOST_LOADED = MOST_ON_DISK = 64  # more models than a fleet serves: a dropped one is not reloaded automatically
FOLDER = "bundles"


class BadBundleFetched(Exception):
    """The hash of an engine's bundle differs from its name, or the bundle cannot be used."""


@dataclass(frozen=True, slots=True)
class Loaded:
    name: str
    bundle: Bundle = field(repr=False)
    cutter: Cutter = field(repr=False)

    @property
    def prefix(self) -> bytes:
        return bytes.fromhex(self.name[:16])


class Bundles:
    """Loads bundles in a thread, because a large tokenizer takes a second."""

    def __init__(self, home: Path | None = None) -> None:
        self._folder = None if home is None else home / FOLDER
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()
        self._loading = asyncio.Lock()  # one at a time: several engines of one model start together

    def get(self, name: str) -> Loaded | None:
        loaded = self._loaded.get(name)
        if loaded is not None:
            self._loaded.move_to_end(name)
        return loaded

    async def ensure(self, name: str, fetch: Callable[[str], Awaitable[bytes]]) -> Loaded:
        """Return the bundle, and load it if necessary. Raise BadBundleFetched, and what `fetch` raises."""
        async with self._loading:
            if cached := self.get(name):
                return cached
            data = await asyncio.to_thread(self._stored, name)
            is_new = data is None
            data = await fetch(name) if data is None else data
            loaded = await asyncio.to_thread(_load, name, data)
            if is_new:
                await asyncio.to_thread(self._store, name, data)
            self._loaded[name] = loaded
            while len(self._loaded) > MOST_LOADED:
                self._loaded.popitem(last=False)
            log.info("prompts are understood as bundle %.12s says", name)
            return loaded

    def _stored(self, name: str) -> bytes | None:
        """Return the stored bundle, or None if it is missing or damaged: then it is fetched again."""
        if self._folder is None:
            return None
        path = self._folder / name
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            if bundle_name(data) == name:
                os.utime(path)  # the most recently used are kept
                return data
        return None

    def _store(self, name: str, data: bytes) -> None:
        """Store a bundle for the next start. A failure is logged, and has no other effect."""
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial = self._folder / f".{name}"
            partial.write_bytes(data)
            partial.replace(self._folder / name)
            stored_files = sorted(self._folder.glob("[0-9a-f]*"), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in stored_files[MOST_ON_DISK:]:
                path.unlink()
        except OSError as problem:
            log.warning("bundle %.12s cannot be kept: %s", name, problem)


def _load(name: str, data: bytes) -> Loaded:
    """Raise BadBundleFetched if the bundle cannot be used."""
    if bundle_name(data) != name:
        raise BadBundleFetched(f"a bundle called {name[:12]} has the hash {bundle_name(data)[:12]}")
    try:
        bundle = bundle_read(data)
        cutter = Cutter(bundle.tokenizer, bundle.special)
    except Exception as problem:  # the tokenizers library raises plain Exception
        raise BadBundleFetched(f"bundle {name[:12]}: {problem}") from problem
    return Loaded(name, bundle, cutter)
