"""A real engine with the demo model behind the OpenAI face and a real web server, in a thread of its own."""

import asyncio
import base64
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import uvicorn

from engine_agent.backends.paged.backend import PagedBackend
from engine_agent.contracts.identity import HEADER, Identity
from engine_agent.contracts.protocol import Snapshot, policy_hash, snapshot_build
from engine_agent.demo import model as demo
from engine_agent.engine.settings import EngineSettings
from engine_agent.http.client import Asgi
from engine_agent.http.connections import Config, Connection
from engine_agent.journal.journal import Entry, Journal
from engine_agent.process.commands import loop_factory
from engine_agent.prompts.bounds import Bounds
from engine_agent.prompts.bundle import Bundle
from engine_agent.prompts.renderer import BoundedTemplate, Renderer
from engine_agent.server.app import openai_app
from engine_agent.server.gateways import GatewayDoor
from engine_agent.server.guard import Guard, KeyGuard, SignedGuard
from engine_agent.server.limits import Limits
from tests.gateway.snapshots import SECRETS
from tests.support.waiting import wait_until
from tests.unit.server.identities import KEY, LOCAL, SECRET

T = TypeVar("T")
Face = Callable[[Asgi], Asgi]
FOLDER = Path(demo.__path__[0])
MODEL, BOOT = "demo", "boot-1"
SETTINGS = EngineSettings(pool_bytes=32 << 20, most_running=16, context_tokens=2_048)
SECONDS = 120  # of a machine that is busy with other things


def snapshot(policy: Mapping[str, Any]) -> Snapshot:
    """One organisation with one namespace."""
    hashed = policy_hash(policy)
    namespace = {"org": "org-1", "slug": "default", "epoch": 0, "revision": 7, "policy": hashed}
    namespace["key"] = base64.b64encode(b"k" * 32).decode()
    organisation = {"org": "org-1", "slug": "acme", "state": "active", "limits": {}}
    return snapshot_build("engine", {"org/org-1": organisation, "ns/ns-1": namespace}, {hashed: policy})


@dataclass(frozen=True, slots=True)
class EitherGuard:
    """One engine for tests of both kinds: alone, and behind a gateway."""

    alone: KeyGuard
    fleet: SignedGuard

    def identify(self, headers: Mapping[str, str], request_id: str) -> Identity:
        guard: Guard = self.fleet if HEADER in headers else self.alone
        return guard.identify(headers, request_id)


class OpenAiEngine:
    """Whatever it has is its loop's; `do` asks there."""

    def __init__(
        self,
        folder: Path,
        *,
        patience: float = 30.0,
        bundle: Bundle | None = None,
        bounds: Bounds | None = None,
        face: Face = lambda app: app,
    ) -> None:
        """`bundle`: how it turns chats into tokens, if not as its model's folder says. `bounds`: of its template.
        `face`: what stands in front.
        """
        self._bounds = bounds
        self._folder, self._patience = folder, patience
        self._bundle, self._face = bundle or Bundle.from_folder(FOLDER), face
        self._is_up = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)  # so that who does not read is noticed
        self._thread = threading.Thread(target=lambda: self._run_all(), name="openai-engine")
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.loop: asyncio.AbstractEventLoop
        self.backend: PagedBackend
        self.journal: Journal

    def start(self) -> None:
        self._thread.start()
        assert self._is_up.wait(SECONDS), "the engine did not start"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(SECONDS)

    @property
    def records(self) -> list[Any]:
        if not self.journal.boots():
            return []
        entries: tuple[Entry, ...] = self.journal.since(BOOT, 0, 1_000_000).entries
        return [entry.record for entry in entries]

    def until_busy(self) -> None:
        wait_until(lambda: self.do(self.backend.stats())["running"])

    def until_idle(self) -> None:
        """Nothing runs, nothing waits, and every block is accounted for."""
        wait_until(self._is_idle)
        assert self.do(self.backend.check_integrity()) == []

    def _is_idle(self) -> bool:
        stats = self.do(self.backend.stats())
        return not (stats["running"] or stats["waiting"])

    def _run_all(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        policy = {"kv_dtype": "bf16", "request_kv_dtypes": ["int4", "fp8"]}
        self.backend = await PagedBackend.open(FOLDER, name=MODEL, settings=SETTINGS, snapshot=snapshot(policy))
        self.journal = Journal.open(self._folder, BOOT, most_bytes=2**26)
        tokenizer, bundle = self.backend.tokenizer, self._bundle
        renderer = Renderer(wait_seconds=SECONDS, bounds=self._bounds)
        limits = Limits.of(self.backend.card, tokenizer)
        bounds = Limits(limits.body_bytes, limits.held_bytes, self._patience, self._patience)
        believed = [SECRET, SECRETS["agent-1"].encode()]  # by a test that signs for itself, and by a gateway
        guard = EitherGuard(KeyGuard(sha256(KEY.encode()).digest(), LOCAL), SignedGuard(believed, "agent-1"))
        gateways = GatewayDoor(self.backend, bundle, guard.fleet, "agent-1")
        app = openai_app(
            self.backend,
            tokenizer,
            BoundedTemplate(bundle.template, renderer),
            self.journal,
            guard,
            agent_id="agent-1",
            limits=bounds,
            gateways=gateways,
        )
        served: Any = self._face(app)
        config = Config(served, http=Connection, log_config=None, lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self.loop.call_soon(self._is_up.set)
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            renderer.close()
            await self.backend.close()
            self.journal.close()


@contextmanager
def running(
    folder: Path,
    *,
    patience: float = 30.0,
    bundle: Bundle | None = None,
    bounds: Bounds | None = None,
    face: Face = lambda app: app,
) -> Iterator[OpenAiEngine]:
    engine = OpenAiEngine(folder, patience=patience, bundle=bundle, bounds=bounds, face=face)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()
