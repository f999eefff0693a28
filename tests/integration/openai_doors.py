"""Two ways to one real engine: straight to its own face, and through a gateway. A client must not see a difference."""

import base64
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAI

from engine_agent.contracts.protocol import Snapshot
from tests.gateway.snapshots import gateway_snapshot, key, namespace, organisation, route
from tests.integration.gateway_fleet import Gateway, gateway
from tests.integration.openai_engine import OpenAiEngine, running
from tests.support.waiting import wait_until
from tests.unit.server.identities import KEY

WAYS = ("engine", "gateway")


@dataclass(frozen=True, slots=True)
class Door:
    """Where a client knocks, and the engine behind it."""

    url: str
    engine: OpenAiEngine

    def client(self, **options: Any) -> OpenAI:
        return OpenAI(**self._told(options))

    def async_client(self, **options: Any) -> AsyncOpenAI:
        return AsyncOpenAI(**self._told(options))

    def _told(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"base_url": f"{self.url}/v1", "api_key": KEY, "max_retries": 0, "timeout": 30, **options}


@contextmanager
def opened(way: str, folder: Path) -> Iterator[Door]:
    with ExitStack() as stack:
        engine = stack.enter_context(running(folder))
        door = engine if way == "engine" else stack.enter_context(before(engine))
        yield Door(door.url, engine)


@contextmanager
def before(engine: OpenAiEngine) -> Iterator[Gateway]:
    """A gateway that knows this engine, what it holds, and the one key there is."""
    with gateway() as running:
        running.apply(vouching(engine.url))
        wait_until(running.heard)
        yield running


def vouching(address: str) -> Snapshot:
    """The tenant that the engine has, for whom the gateway speaks there."""
    (ns,) = namespace("ns-1", "org-1", "default").values()
    return gateway_snapshot(
        organisation("org-1", "acme"),
        {"ns/ns-1": {**ns, "key": base64.b64encode(b"k" * 32).decode()}},
        key(KEY, "org-1"),
        route("agent-1", address),
    )
