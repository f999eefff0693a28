"""A sidecar at work goes on, whatever its holder answers."""

import asyncio
import base64
from collections import Counter
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from engine_agent.sidecar.config import SidecarConfig
from engine_agent.sidecar.credentials import Credentials
from engine_agent.sidecar.holder import HolderRejected, HolderState
from engine_agent.sidecar.runtime import Runtime
from engine_agent.sidecar.simulated import SimulatedHolder


class Odd(SimulatedHolder):
    """An engine that answers nonsense, and every other time what it should."""

    def __init__(self) -> None:
        super().__init__("odd", labels={})
        self.asked: Counter[str] = Counter()

    def _ask(self, name: str) -> None:
        self.asked[name] += 1
        if self.asked[name] % 2:
            raise KeyError(name)

    async def state(self) -> HolderState:
        self._ask("state")
        return await super().state()

    async def about(self) -> Any:
        self._ask("about")
        return await super().about()

    async def pins_wanted(self) -> Any:
        self._ask("pins")
        raise HolderRejected("the admin face says no")


def credentials() -> Credentials:
    """Of a control plane that nobody reaches."""
    keys = {"verifying": Ed25519PrivateKey.generate().public_key().public_bytes_raw(), "sealing": bytes(32)}
    told = {name: base64.b64encode(key).decode() for name, key in keys.items()}
    broker = {"url": "redis://127.0.0.1:1/0", "prefix": "", "queue": "q"}
    return Credentials("http://127.0.0.1:1", "unit-1", "engine", "default", "lat_x", 1, broker, told)


def test_odd_answers_end_no_sidecar(tmp_path: Path) -> None:
    config = SidecarConfig(tmp_path, look_seconds=0.01, about_seconds=0.01, pins_seconds=0.01, stop_seconds=0.01)
    holder = Odd()
    runtime = Runtime(config, credentials(), holder)

    async def at_work() -> None:
        stopping = asyncio.Event()
        running = asyncio.create_task(runtime.run(stopping))
        async with asyncio.timeout(30):
            while len(holder.asked) < 3 or min(holder.asked.values()) < 4:
                assert not running.done(), running.exception()
                await asyncio.sleep(0.01)
        stopping.set()
        await running

    asyncio.run(at_work())
    assert runtime.machine.ledger.about is not None, "what it said between"
    assert runtime.machine.holder is not None or "cannot be read" in runtime.machine.why_away
