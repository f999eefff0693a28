"""The policy file of a standalone engine: a namespace's fields and its pinned prefixes. JSON or TOML."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine_agent.cache.errors import InvalidValue
from engine_agent.cache.policy import POLICY_FIELDS, NamespacePolicy
from engine_agent.engine.errors import BadRequest, EngineError
from engine_agent.http.errors import ApiError
from engine_agent.http.strict_json import read_object
from engine_agent.server.pin_content import PinContent, pin_content

MOST_PINS = 1_000
MOST_FILE_BYTES = 64 * 2**20


class BadPolicy(EngineError):
    """A policy file that cannot be applied. Names the file, the field and the value."""


@dataclass(frozen=True, slots=True)
class PinWish:
    """A requested pin."""

    name: str
    content: PinContent = field(repr=False)
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PolicyFile:
    policy: Mapping[str, Any] = field(default_factory=dict)  # as in a snapshot: explicit values only
    pins: tuple[PinWish, ...] = ()


def read_policy_file(path: Path) -> PolicyFile:
    """Return the policy in a file. Raises BadPolicy."""
    try:
        return _policy(_document(path))
    except OSError as problem:
        raise BadPolicy(f"{path}: {problem.strerror}") from problem
    except ValueError as problem:
        raise BadPolicy(f"{path}: is no {_format(path)}: {problem}") from problem
    except (InvalidValue, BadRequest, ApiError) as problem:
        raise BadPolicy(f"{path}: {problem}") from problem


def pin_wish(fields: Mapping[str, Any], prefix: str = "") -> PinWish:
    """Return a pin in the file or a request. Raises BadRequest with the field's name."""
    name = fields.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise BadRequest(f"{prefix}name", "must be a text of 1 to 200 characters")
    known_fields = {"name", "expires_at", "token_ids", "prompt", "messages"}
    for unknown in fields.keys() - known_fields:
        raise BadRequest(f"{prefix}{ascii(unknown[:80])[1:-1]}", f"is none of {', '.join(sorted(known_fields))}")
    content = {key: value for key, value in fields.items() if key not in ("name", "expires_at")}
    return PinWish(name, pin_content(content, prefix), _instant(fields.get("expires_at"), f"{prefix}expires_at"))


def _format(path: Path) -> str:
    return "TOML" if path.suffix.lower() == ".toml" else "JSON"


def _document(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        content = file.read(MOST_FILE_BYTES + 1)
    if len(content) > MOST_FILE_BYTES:
        raise ValueError(f"more than {MOST_FILE_BYTES:,} bytes")
    return tomllib.loads(content.decode()) if _format(path) == "TOML" else read_object(content)


def _policy(document: dict[str, Any]) -> PolicyFile:
    policy, pins = {name: value for name, value in document.items() if name != "pins"}, document.get("pins", [])
    for unknown in sorted(policy.keys() - set(POLICY_FIELDS)):
        raise BadRequest(ascii(unknown[:80])[1:-1], f"is none of {', '.join(POLICY_FIELDS)}, pins")
    NamespacePolicy.from_effective(policy)
    if not isinstance(pins, list) or len(pins) > MOST_PINS or not all(isinstance(pin, dict) for pin in pins):
        raise BadRequest("pins", f"must be a list of at most {MOST_PINS:,} objects")
    return PolicyFile(policy, tuple(pin_wish(pin, f"pins[{number}].") for number, pin in enumerate(pins)))


def _instant(raw: object, field: str) -> datetime | None:
    """Return an instant: TOML has a type for it, JSON a text."""
    instant = raw
    if isinstance(raw, str):
        try:
            instant = datetime.fromisoformat(raw)
        except ValueError:
            raise BadRequest(field, f"{raw[:40]!r} is no instant like 2027-01-31T23:59:59Z") from None
    if instant is None:
        return None
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        raise BadRequest(field, "must be an instant with its offset from UTC, like 2027-01-31T23:59:59Z")
    return instant.astimezone(UTC)
