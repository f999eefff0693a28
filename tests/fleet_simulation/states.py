"""What agents are to hold in the simulation: real snapshots of a few namespaces, made once for each combination."""

import base64
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any

from engine_agent.contracts.protocol import (
    HashMismatch,
    Snapshot,
    change_apply,
    change_between,
    change_decode,
    change_encode,
    policy_hash,
    snapshot_build,
    snapshot_decode,
    snapshot_encode,
)

NAMESPACES = ("1", "2", "3")
ORGANISATION = "1"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The tenants' tables, as far as they matter here: what each namespace's policy and epoch are."""

    revisions: tuple[int, ...] = (1,) * len(NAMESPACES)
    epochs: tuple[int, ...] = (1,) * len(NAMESPACES)

    def published(self, place: int) -> "Wanted":
        return Wanted(_counted_up(self.revisions, place), self.epochs)

    def purged(self, place: int) -> "Wanted":
        return Wanted(self.revisions, _counted_up(self.epochs, place))


def _counted_up(numbers: tuple[int, ...], place: int) -> tuple[int, ...]:
    return (*numbers[:place], numbers[place] + 1, *numbers[place + 1 :])


@lru_cache(maxsize=4096)
def snapshot_of(wanted: Wanted) -> Snapshot:
    entries: dict[str, dict[str, Any]] = {
        f"org/{ORGANISATION}": {"org": ORGANISATION, "slug": "acme", "state": "active", "limits": {}}
    }
    policies = {}
    for name, revision, epoch in zip(NAMESPACES, wanted.revisions, wanted.epochs, strict=True):
        policy = _policy(revision)
        policies[policy_hash(policy)] = policy
        entries[f"ns/{name}"] = {
            "org": ORGANISATION,
            "slug": f"ns-{name}",
            "epoch": epoch,
            "key": _key(name, epoch),
            "revision": revision,
            "policy": policy_hash(policy),
        }
    return snapshot_build("engine", entries, policies)


@lru_cache(maxsize=4096)
def body_of(wanted: Wanted) -> bytes:
    """As it is served."""
    return snapshot_encode(snapshot_of(wanted))


@lru_cache(maxsize=16384)
def change_text(before: Wanted, after: Wanted) -> str:
    """As a command carries it."""
    return base64.b64encode(change_encode(change_between(snapshot_of(before), snapshot_of(after)))).decode()


@lru_cache(maxsize=4096)
def snapshot_in(body: bytes) -> Snapshot:
    return snapshot_decode(body)


def snapshot_after(before: Snapshot, change: bytes) -> Snapshot | None:
    """What a change leads to; None: it was made for another state, or leads elsewhere than it says."""
    return _after(before.hash, change, _By(before))


@dataclass(frozen=True, slots=True)
class _By:
    """Equal to every other: beside the hash, the snapshot itself says nothing new."""

    snapshot: Snapshot = field(compare=False)


@lru_cache(maxsize=16384)
def _after(before: str, change: bytes, by: _By) -> Snapshot | None:
    try:
        return change_apply(by.snapshot, change_decode(change))
    except HashMismatch:
        return None


def _policy(revision: int) -> dict[str, Any]:
    return {"ttl_seconds": 60 + revision}


def _key(namespace: str, epoch: int) -> str:
    return base64.b64encode(sha256(f"{namespace}/{epoch}".encode()).digest()).decode()
