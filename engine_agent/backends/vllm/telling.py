"""Messages between vLLM's engine process and ours, as msgpack's plain types: events, loads, and errors by name.

Standard library only.
"""

from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Any

from engine_agent.backends.block_pages import Found, Question
from engine_agent.cache.events import Event, IndexSnapshot, Replay, Stored
from engine_agent.cache.keys import Digest, Digests
from engine_agent.contracts.block_events import Load
from engine_agent.contracts.protocol import HashMismatch, MalformedMessage
from engine_agent.engine.errors import (
    BadRequest,
    EngineFailed,
    Overloaded,
    Overlong,
    RejectedSnapshot,
    RequestError,
    UnknownTenant,
)

_OF_REQUESTS: Mapping[str, type[RequestError]] = {
    kind.__name__: kind for kind in (BadRequest, EngineFailed, Overloaded, Overlong, UnknownTenant)
}


def found_packed(found: Found) -> Any:
    if isinstance(found, Replay):
        return ["replay", found.boot, [_event(event) for event in found.events]]
    if isinstance(found, IndexSnapshot):
        return ["snapshot", found.boot, found.number, [_stored(one) for one in found.stored]]
    return None


def found_unpacked(said: Any) -> Found:
    if said is None:
        return None
    if said[0] == "replay":
        return Replay(said[1], tuple(_event_read(*event) for event in said[2]))
    return IndexSnapshot(said[1], said[2], tuple(_stored_read(*one) for one in said[3]))


def question_packed(question: Question | None) -> Any:
    return None if question is None else [question.boot, question.since, question.kept and list(question.kept)]


def question_unpacked(said: Any) -> Question | None:
    return None if said is None else Question(said[0], said[1], said[2] and (said[2][0], said[2][1]))


def load_unpacked(said: Any) -> Load:
    return Load(*said)


def load_packed(load: Load) -> Any:
    return list(astuple(load))


def error_packed(error: Exception) -> list[Any] | None:
    """Return the error by name, or None if it is unexpected."""
    match error:
        case RejectedSnapshot():
            return ["RejectedSnapshot", error.entry, error.problem]
        case HashMismatch():
            return ["HashMismatch", error.expected, error.found]
        case MalformedMessage():
            return ["MalformedMessage", error.field, error.problem]
        case RequestError():
            return [type(error).__name__, error.field, error.problem]
    return None


def error_unpacked(said: Any) -> Exception:
    name, *about = said
    others: Mapping[str, Callable[..., Exception]] = {
        "RejectedSnapshot": RejectedSnapshot,
        "MalformedMessage": MalformedMessage,
        "HashMismatch": lambda expected, found: HashMismatch(expected=expected, found=found),
    }
    return others[name](*about) if name in others else request_error(name, *about)


def request_error(name: str, field: str, problem: str) -> RequestError:
    return _OF_REQUESTS.get(name, EngineFailed)(field, problem)


def _event(event: Event) -> list[Any]:
    about = [event.number, event.kind, event.namespace, event.kv_format, bytes(event.root), event.tier]
    return [*about, bytes(event.parent), event.digests.packed, event.is_gone]


def _event_read(number: int, kind: Any, namespace: str, kv_format: str, root: bytes, tier: str, *rest: Any) -> Event:
    parent, packed, is_gone = rest
    digests = Digests(bytes(packed))
    return Event(number, kind, namespace, kv_format, Digest(root), tier, Digest(parent), digests, is_gone)


def _stored(one: Stored) -> list[Any]:
    return [one.namespace, one.kv_format, bytes(one.root), list(one.tiers), bytes(one.parent), one.digests.packed]


def _stored_read(namespace: str, kv_format: str, root: bytes, tiers: Any, parent: bytes, packed: bytes) -> Stored:
    return Stored(namespace, kv_format, Digest(root), tuple(tiers), Digest(parent), Digests(bytes(packed)))
