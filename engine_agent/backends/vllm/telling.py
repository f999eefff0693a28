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


def found_packed(changes: Found) -> Any:
    if isinstance(changes, Replay):
        return ["replay", changes.boot, [_event(event) for event in changes.events]]
    if isinstance(changes, IndexSnapshot):
        return ["snapshot", changes.boot, changes.number, [_stored(run) for run in changes.stored]]
    return None


def found_unpacked(packed_changes: Any) -> Found:
    if packed_changes is None:
        return None
    if packed_changes[0] == "replay":
        return Replay(packed_changes[1], tuple(_event_read(*event) for event in packed_changes[2]))
    return IndexSnapshot(
        packed_changes[1], packed_changes[2], tuple(_stored_read(*packed_run) for packed_run in packed_changes[3])
    )


def question_packed(question: Question | None) -> Any:
    return None if question is None else [question.boot, question.since, question.kept and list(question.kept)]


def question_unpacked(packed_question: Any) -> Question | None:
    return (
        None
        if packed_question is None
        else Question(
            packed_question[0],
            packed_question[1],
            packed_question[2] and (packed_question[2][0], packed_question[2][1]),
        )
    )


def load_unpacked(packed_load: Any) -> Load:
    return Load(*packed_load)


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


def error_unpacked(packed_error: Any) -> Exception:
    name, *arguments = packed_error
    error_types: Mapping[str, Callable[..., Exception]] = {
        "RejectedSnapshot": RejectedSnapshot,
        "MalformedMessage": MalformedMessage,
        "HashMismatch": lambda expected, actual: HashMismatch(expected=expected, found=actual),
    }
    return error_types[name](*arguments) if name in error_types else request_error(name, *arguments)


def request_error(name: str, field: str, problem: str) -> RequestError:
    return _OF_REQUESTS.get(name, EngineFailed)(field, problem)


def _event(event: Event) -> list[Any]:
    header = [event.number, event.kind, event.namespace, event.kv_format, bytes(event.root), event.tier]
    return [*header, bytes(event.parent), event.digests.packed, event.is_gone]


def _event_read(
    number: int, kind: Any, namespace: str, kv_format: str, root: bytes, tier: str, *remainder: Any
) -> Event:
    parent, packed, is_gone = remainder
    digests = Digests(bytes(packed))
    return Event(number, kind, namespace, kv_format, Digest(root), tier, Digest(parent), digests, is_gone)


def _stored(run: Stored) -> list[Any]:
    return [run.namespace, run.kv_format, bytes(run.root), list(run.tiers), bytes(run.parent), run.digests.packed]


def _stored_read(namespace: str, kv_format: str, root: bytes, tiers: Any, parent: bytes, packed: bytes) -> Stored:
    return Stored(namespace, kv_format, Digest(root), tuple(tiers), Digest(parent), Digests(bytes(packed)))
