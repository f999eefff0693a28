"""A standalone engine: one organisation `local` with one namespace `default`, whose policy is a local file.

It makes the snapshots that a control plane would send, so the engine applies policies in one way only. Each action
makes the next state, applies it to the engine, and only then adopts it: a state that cannot be applied changes nothing.
"""

import asyncio
import base64
import hashlib
import logging
import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from engine_agent.backends.base import Backend
from engine_agent.cache.errors import UnknownPin
from engine_agent.contracts.identity import Identity
from engine_agent.contracts.protocol import Entry, Snapshot, policy_hash, snapshot_build
from engine_agent.engine.errors import BadRequest
from engine_agent.server.face import Template
from engine_agent.server.pin_content import Encoder, pin_tokens
from engine_agent.server.policy_file import PinWish, PolicyFile
from engine_agent.server.state import StateFolder

log = logging.getLogger(__name__)
ORGANISATION, NAMESPACE = "local", "default"  # ids and slugs alike
KEY_BYTES = 32
KEPT = "policy.json"  # the revision and its policy


def _key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


@dataclass(frozen=True, slots=True)
class Held:
    """The applied state. The namespace's key is new at every start, because the cache is empty then."""

    policy: Mapping[str, Any]
    revision: int
    epoch: int = 0
    key: bytes = field(default_factory=_key, repr=False)
    of_file: Mapping[str, PinWish] = field(default_factory=dict, repr=False)
    asked_for: Mapping[str, PinWish] = field(default_factory=dict, repr=False)

    @property
    def pins(self) -> dict[str, PinWish]:
        return {**self.of_file, **self.asked_for}

    def snapshot(self, model: str) -> Snapshot:
        policy = policy_hash(self.policy)
        namespace = {
            "org": ORGANISATION,
            "slug": NAMESPACE,
            "epoch": self.epoch,
            "key": base64.b64encode(self.key).decode(),
            "revision": self.revision,
            "policy": policy,
        }
        organisation = {"org": ORGANISATION, "slug": ORGANISATION, "state": "active", "limits": {}}
        pins = {f"pin/{pin_id}": _pin_entry(pin, model) for pin_id, pin in self.pins.items()}
        entries: dict[str, Entry] = {f"org/{ORGANISATION}": organisation, f"ns/{NAMESPACE}": namespace, **pins}
        return snapshot_build("engine", entries, {policy: self.policy})


class LocalTenants:
    """The actions of operators on this machine, one at a time."""

    def __init__(self, state: StateFolder, backend: Backend, tokenizer: Encoder, template: Template | None) -> None:
        self._state, self._backend = state, backend
        self._tokenizer, self._template = tokenizer, template
        self._held = _last(state)
        self._lock = asyncio.Lock()

    @property
    def revision(self) -> int:
        return self._held.revision

    async def publish(self, file: PolicyFile) -> int:
        """Apply a policy file and return its revision. Raises RejectedSnapshot, BadRequest, OSError."""
        async with self._lock:
            is_new = policy_hash(file.policy) != policy_hash(self._held.policy) or not self._held.revision
            revision = self._held.revision + is_new
            # Stored before it is applied: otherwise a published revision could be lost and later name another policy.
            self._state.keep(KEPT, {"revision": revision, "policy": dict(file.policy)})
            await self._obey(replace(self._held, policy=file.policy, revision=revision, of_file=_by_id(file.pins)))
            if file.pins and not file.policy.get("pin_share"):
                log.warning("the policy has pins and no pin_share, so none of them is kept")
            return revision

    async def purge(self) -> int:
        """Purge all cached blocks and return the namespace's new epoch."""
        async with self._lock:
            await self._obey(replace(self._held, epoch=self._held.epoch + 1, key=_key()))
            return self._held.epoch

    async def pin(self, pin: PinWish) -> str:
        """Pin a prefix until the engine ends or it is unpinned, and return its id. Raises BadRequest."""
        async with self._lock:
            pin_id = _pin_id(pin)
            await self._obey(replace(self._held, asked_for={**self._held.asked_for, pin_id: pin}))
            return pin_id

    async def unpin(self, pin_id: str) -> None:
        """Remove a pin. Raises UnknownPin, and BadRequest for a pin in the policy file, which would return."""
        async with self._lock:
            if pin_id in self._held.of_file:
                raise BadRequest("pin", f"{pin_id} is a pin of the policy file: take it out there")
            remaining_pins = {other_id: pin for other_id, pin in self._held.asked_for.items() if other_id != pin_id}
            if len(remaining_pins) == len(self._held.asked_for):
                raise UnknownPin(pin_id)
            await self._obey(replace(self._held, asked_for=remaining_pins))

    async def _obey(self, configuration: Held) -> None:
        contents = {
            pin_id: await self._tokens(pin)
            for pin_id, pin in configuration.pins.items()
            if pin_id not in self._held.pins
        }
        await self._backend.apply(configuration.snapshot(self._backend.card.name))
        self._held = configuration
        for pin_id, tokens in contents.items():
            await self._backend.set_pin_content(pin_id, tokens)

    async def _tokens(self, pin: PinWish) -> list[int]:
        card = self._backend.card
        return await pin_tokens(pin.content, card, self._tokenizer, self._template)


def identity(revision: int, audience: str) -> Identity:
    """Return the identity of every request with the engine's own key."""
    return Identity(
        organisation_id=ORGANISATION,
        organisation=ORGANISATION,
        namespace_id=NAMESPACE,
        namespace=NAMESPACE,
        scope="infer",
        policy_revision=revision,
        request_id="",
        attempt=1,
        kind="customer",
        deadline=None,
        issued_at=0.0,
        expires_at=math.inf,
        audience=audience,
    )


def _last(state: StateFolder) -> Held:
    """Return the policy of the previous process, so that the same policy keeps its revision."""
    document = state.document(KEPT)
    policy, revision = document.get("policy"), document.get("revision")
    if isinstance(policy, dict) and type(revision) is int and 0 < revision < 2**62:
        return Held(policy, revision)
    return Held({}, 0)


def _by_id(pins: Iterable[PinWish]) -> dict[str, PinWish]:
    return {_pin_id(pin): pin for pin in pins}


def _pin_id(pin: PinWish) -> str:
    """Return an id that is a hash of the pin, because the content of a pin id never changes."""
    identity = f"{pin.name}\0{pin.expires_at}\0{pin.content.kind}\0{pin.content.value}"
    return f"pin-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def _pin_entry(pin: PinWish, model: str) -> dict[str, Any]:
    return {
        "org": ORGANISATION,
        "ns": NAMESPACE,
        "name": pin.name,
        "model": model,
        "kind": pin.content.kind,
        "bytes": pin.content.size_bytes,
        "expires_at": pin.expires_at and _instant(pin.expires_at),
    }


def _instant(at: datetime) -> str:
    return at.replace(tzinfo=None, microsecond=0).isoformat() + "Z"
