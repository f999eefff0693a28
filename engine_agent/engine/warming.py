"""Pin warming: pins the snapshot's prefixes and computes those that are not resident.

The snapshot contains a pin's metadata; its content arrives separately, once. When its namespace gets a new key, the pin
is set again, so a prefix that is still pinned after a purge is recomputed. A pin that cannot be set waits until its
obstacle changes or, without room in the budget, until the next try.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from engine_agent.cache.errors import CacheError, PinOverBudget
from engine_agent.cache.manager import BlockManager
from engine_agent.engine.asked import Generate
from engine_agent.engine.errors import RequestError
from engine_agent.engine.held import PinnedPrefix, Tenant
from engine_agent.engine.outputs import Admission, Delta
from engine_agent.engine.params import SamplingParams
from engine_agent.engine.tenants import Tenants

LOOK_SECONDS = 0.5
PATIENCE_SECONDS = 10.0  # before retrying a prefix that was evicted or could not be computed

Hindrance = Literal["over_budget", "expired", "disabled", "refused"]
Submit = Callable[[Generate, "Warmed"], object]


@dataclass(slots=True)
class Warmed:
    """The sink of a warm-up in progress; its outputs are not used."""

    pin: "_Pinned"
    tell: Callable[[str, Admission], None]

    def admitted(self, prompt: int, admission: Admission) -> None:
        self.tell(self.pin.namespace, admission)

    def delta(self, delta: Delta) -> None:
        raise AssertionError("a warm-up generates nothing")

    def failed(self, error: RequestError) -> None:
        self.pin.is_warming, self.pin.problem = False, str(error)

    def finished(self) -> None:
        self.pin.is_warming = False


@dataclass(slots=True)
class _Pinned:
    """A pin as it was passed to the block manager."""

    namespace: str
    expires_at: datetime | None
    epoch: int
    kv_format: str
    tokens: Sequence[int] = field(repr=False)
    is_warming: bool = False
    try_after: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Problem:
    """The reason why a pin could not be passed to the block manager, and the inputs for which it holds."""

    state: Hindrance
    said: str
    pin: PinnedPrefix
    tenant: Tenant
    tokens: Sequence[int] = field(repr=False)
    try_after: float


class PinWarming:
    def __init__(
        self,
        manager: BlockManager,
        tenants: Tenants,
        *,
        model_revision: str,
        scale_set: Callable[[str], str],
        submit: Submit,
        clock: Callable[[], float],
    ) -> None:
        self._manager, self._tenants = manager, tenants
        self._model_revision, self._scale_set = model_revision, scale_set
        self._submit, self._clock = submit, clock
        self._contents: dict[str, Sequence[int]] = {}
        self._pinned: dict[str, _Pinned] = {}
        self._problems: dict[str, _Problem] = {}
        self._look_at = 0.0
        self.admitted: Callable[[str, Admission], None] = lambda namespace, admission: None

    def set_content(self, pin_id: str, tokens: Sequence[int]) -> None:
        self._contents[pin_id] = tokens
        self.settle()

    def settle(self) -> None:
        """Apply a new snapshot or content: set the pins that should exist and remove the others."""
        for pin_id in self._contents.keys() - self._tenants.pins.keys():
            del self._contents[pin_id]
        unpinned = [pin_id for pin_id in self._pinned if not self._is_current(pin_id)]
        freed = {self._unpin(pin_id) for pin_id in unpinned}
        for pin_id, problem in list(self._problems.items()):
            if problem.pin.namespace in freed or not self._is_still_so(problem):
                del self._problems[pin_id]
        for pin_id, pin in self._tenants.pins.items():
            if pin_id in self._contents and pin_id not in self._pinned and pin_id not in self._problems:
                self._pin(pin)
        self._look_at = 0.0

    def warm(self) -> None:
        """Request the computation of pinned prefixes that are not resident, at intervals."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        self._retry(now)
        for namespace in {pinned.namespace for pinned in self._pinned.values()}:
            for status in self._manager.pins(namespace):
                pinned = self._pinned.get(status.pin_id)
                if pinned is None or pinned.is_warming or now < pinned.try_after:
                    continue
                if status.state == "active" and status.resident_blocks < status.wanted_blocks:
                    self._ask(status.pin_id, pinned, status.wanted_blocks, now)

    def status(self) -> list[Mapping[str, Any]]:
        """Return every pin of the snapshot."""
        statuses = {
            status.pin_id: status
            for namespace in {pinned.namespace for pinned in self._pinned.values()}
            for status in self._manager.pins(namespace)
        }
        reports: list[Mapping[str, Any]] = []
        for pin_id, pin in self._tenants.pins.items():
            status, pinned, problem = statuses.get(pin_id), self._pinned.get(pin_id), self._problems.get(pin_id)
            reports.append(
                {
                    "id": pin_id,
                    "namespace": pin.namespace,
                    "name": pin.name,
                    "state": status.state if status else self._without(pin_id),
                    "wanted_blocks": status.wanted_blocks if status else None,
                    "resident_blocks": status.resident_blocks if status else 0,
                    "resident_bytes": status.resident_bytes if status else 0,
                    "is_warming": bool(pinned and pinned.is_warming),
                    "problem": pinned.problem if pinned else problem.said if problem else "",
                }
            )
        return reports

    def _without(self, pin_id: str) -> str:
        """Return the state of a pin that the block manager does not know, or no longer knows."""
        if pin_id in self._pinned:
            return "expired"
        return self._problems[pin_id].state if pin_id in self._problems else "content_missing"

    def _retry(self, now: float) -> None:
        """Try again to set pins that found no room in the budget."""
        for problem in list(self._problems.values()):
            if now >= problem.try_after:
                del self._problems[problem.pin.pin_id]
                self._pin(problem.pin)

    def _is_still_so(self, problem: _Problem) -> bool:
        return (
            self._tenants.pins.get(problem.pin.pin_id) == problem.pin
            and self._tenants.known(problem.pin.namespace) == problem.tenant
            and self._contents.get(problem.pin.pin_id) is problem.tokens
        )

    def _is_current(self, pin_id: str) -> bool:
        pinned, pin = self._pinned[pin_id], self._tenants.pins.get(pin_id)
        tenant = self._tenants.known(pinned.namespace)
        return (
            pin is not None
            and tenant is not None
            and (pin.namespace, pin.expires_at, tenant.epoch, tenant.policy.kv_dtype)
            == (pinned.namespace, pinned.expires_at, pinned.epoch, pinned.kv_format)
            and self._contents.get(pin_id) is pinned.tokens
        )

    def _pin(self, pin: PinnedPrefix) -> None:
        tenant = self._tenants.known(pin.namespace)
        if tenant is None:
            return
        tokens = self._contents[pin.pin_id]
        hindrance = self._hand_over(pin, tenant, tokens)
        if hindrance is None:
            self._pinned[pin.pin_id] = _Pinned(
                pin.namespace, pin.expires_at, tenant.epoch, tenant.policy.kv_dtype, tokens
            )
            return
        state, problem_text = hindrance
        try_after = self._clock() + PATIENCE_SECONDS if state == "over_budget" else math.inf
        self._problems[pin.pin_id] = _Problem(state, problem_text, pin, tenant, tokens, try_after)

    def _hand_over(self, pin: PinnedPrefix, tenant: Tenant, tokens: Sequence[int]) -> tuple[Hindrance, str] | None:
        """Set the pin in the block manager, or return why not. Checks without hashing come first: it may be long."""
        if not tenant.policy.prefix_caching:
            return "disabled", "prefix_caching is off in its namespace"
        if pin.expires_at is not None and pin.expires_at.timestamp() <= time.time():
            return "expired", f"it ended at {pin.expires_at.isoformat()}, before it was pinned"
        kv_format = tenant.policy.kv_dtype
        try:
            self._manager.pin(
                pin.pin_id,
                pin.namespace,
                tokens,
                kv_format=kv_format,
                model_revision=self._model_revision,
                scale_set=self._scale_set(kv_format),
                owner=pin.name,
                expires_at=self._ends_at(pin),
            )
        except PinOverBudget as problem:
            return "over_budget", str(problem)
        except CacheError as problem:
            return "expired" if problem.field == "expires_at" else "refused", str(problem)
        return None

    def _ends_at(self, pin: PinnedPrefix) -> float | None:
        if pin.expires_at is None:
            return None
        return self._manager.cache.now() + pin.expires_at.timestamp() - time.time()

    def _unpin(self, pin_id: str) -> str:
        """Remove a pin, and return the namespace whose budget has more room now."""
        pinned = self._pinned.pop(pin_id)
        tenant: Tenant | None = self._tenants.known(pinned.namespace)
        if tenant is not None and any(status.pin_id == pin_id for status in self._manager.pins(pinned.namespace)):
            self._manager.unpin(pinned.namespace, pin_id)
        return pinned.namespace

    def _ask(self, pin_id: str, pinned: _Pinned, blocks: int, now: float) -> None:
        pinned.try_after = now + PATIENCE_SECONDS
        tokens = pinned.tokens[: blocks * self._manager.cache.block_tokens]
        request = Generate(f"pin-{pin_id}", pinned.namespace, (tokens,), SamplingParams(), kind="pin")
        pinned.is_warming, pinned.problem = True, ""
        try:
            self._submit(request, Warmed(pinned, self.admitted))
        except RequestError as problem:
            pinned.is_warming, pinned.problem = False, str(problem)
