"""Journal records of pins' warm-ups: prompts that the engine computes for itself, stored as such, without charge."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from typing import Any

from engine_agent.backends.base import Backend
from engine_agent.engine.errors import EngineFailed
from engine_agent.engine.outputs import Admission
from engine_agent.journal.journal import Journal, JournalFull, Opened
from engine_agent.server.counters import EngineTotals


class WarmUps:
    """Writes warm-up records. They have no closing record: nothing is generated, and no client waits."""

    def __init__(self, backend: Backend, journal: Journal, totals: EngineTotals, clock: Callable[[], float]) -> None:
        self._backend, self._journal, self._totals, self._clock = backend, journal, totals, clock
        self._writing: set[asyncio.Task[None]] = set()

    def admitted(self, kind: str, namespace: str, admission: Admission) -> None:
        assert kind == "pin"  # a health probe belongs to no namespace
        writing = asyncio.get_running_loop().create_task(self._write(namespace, admission))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def _write(self, namespace: str, admission: Admission) -> None:
        with contextlib.suppress(EngineFailed, JournalFull):
            for entry in (await self._backend.stats())["namespaces"]:
                if entry["namespace"] == namespace:
                    record = _record(entry, admission, model=self._backend.card.name, at=self._clock())
                    self._totals.opened(record, self._journal.opened(record))


def _record(tenant: Any, admission: Admission, *, model: str, at: float) -> Opened:
    return Opened(
        request_id=uuid.uuid4().hex,
        attempt=1,
        kind="pin",
        at=at,
        organisation_id=tenant["organisation"],
        organisation=tenant["organisation_slug"],
        namespace_id=tenant["namespace"],
        namespace=tenant["namespace_slug"],
        policy_revision=admission.policy_revision,
        model=model,
        kv_dtype=admission.kv_dtype,
        prompt_tokens=admission.prompt_tokens,
        cached_tokens=admission.cached_tokens,
        miss_reason=admission.miss_reason,
        missed=admission.missed,
    )
