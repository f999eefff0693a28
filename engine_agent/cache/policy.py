"""A namespace's effective policy as the block manager reads it, checked once.

The control plane decides where a policy comes from and which values an organisation may set.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from engine_agent.cache.errors import InvalidValue
from engine_agent.contracts.policy_fields import DEFAULTS, FIELDS, WEEK_SECONDS, Offload, PolicyField, TtlMode

LONGEST_TTL_SECONDS = WEEK_SECONDS


@dataclass(frozen=True, slots=True)
class NamespacePolicy:
    """The fields of the registry, typed for the code that applies them. An unset nullable number is infinite."""

    prefix_caching: bool = DEFAULTS["prefix_caching"]
    ttl_seconds: float = DEFAULTS["ttl_seconds"]
    ttl_mode: TtlMode = DEFAULTS["ttl_mode"]
    max_age_seconds: float = DEFAULTS["max_age_seconds"]
    kv_dtype: str = DEFAULTS["kv_dtype"]
    request_kv_dtypes: tuple[str, ...] = DEFAULTS["request_kv_dtypes"]
    reserved_share: float = DEFAULTS["reserved_share"]
    limit_share: float = DEFAULTS["limit_share"]
    weight: float = DEFAULTS["weight"]
    pin_share: float = DEFAULTS["pin_share"]
    offload: Offload = DEFAULTS["offload"]

    def __post_init__(self) -> None:
        for name in POLICY_FIELDS:
            _checked(FIELDS[name], getattr(self, name))
        if self.reserved_share > self.limit_share:
            raise InvalidValue("reserved_share", self.reserved_share, f"at most limit_share, {self.limit_share}")

    @classmethod
    def from_effective(cls, policy: Mapping[str, Any]) -> "NamespacePolicy":
        """Return the policy in a snapshot's policy object. Other subsystems' fields are ignored, missing ones get
        defaults.
        """
        known_fields = {name: _from_json(FIELDS[name], policy[name]) for name in POLICY_FIELDS if name in policy}
        return cls(**known_fields)

    def idle_seconds(self) -> float:
        """Return how long a block can be matched after its last release."""
        return self.ttl_seconds if self.ttl_mode == "sliding" else math.inf

    def age_seconds(self) -> float:
        """Return how long a block can be matched after its creation, in use or not."""
        return self.max_age_seconds if self.ttl_mode == "sliding" else min(self.ttl_seconds, self.max_age_seconds)


POLICY_FIELDS = tuple(field.name for field in fields(NamespacePolicy))


def ttl_cap_checked(seconds: float | None) -> float:
    """Return a request's own TTL, which can only shorten the policy's, or infinity when it has none."""
    return math.inf if seconds is None else _seconds_checked("ttl_seconds", seconds, LONGEST_TTL_SECONDS)


def _seconds_checked(name: str, seconds: float, longest: float) -> float:
    if not is_number(seconds) or not 0 < seconds <= longest:
        bound = f" up to {longest:,.0f}" if longest < math.inf else ""
        raise InvalidValue(name, seconds, f"seconds above 0{bound}")
    return seconds


def _from_json(field: PolicyField, value: Any) -> Any:
    if field.kind == "formats" and isinstance(value, list):
        return tuple(value)
    return math.inf if field.is_nullable and value is None else value


def _checked(field: PolicyField, value: Any) -> None:
    """Raise InvalidValue for an invalid value. Shares, seconds and numbers may be finer than in the control plane."""
    match field.kind:
        case "switch":
            is_valid, expected = type(value) is bool, "true or false"
        case "seconds":
            _seconds_checked(field.name, value, math.inf if field.is_nullable else field.maximum or math.inf)
            return
        case "choice":
            is_valid, expected = value in field.choices, f"one of {', '.join(field.choices)}"
        case "format":
            is_valid, expected = type(value) is str and value != "", "the name of a format"
        case "formats":
            is_valid = type(value) is tuple and all(type(name) is str for name in value)
            expected = "names of formats"
        case "share" | "number":
            minimum, maximum = field.minimum or 0, field.maximum or math.inf
            is_valid = is_number(value) and minimum <= value <= maximum
            expected = f"a {field.kind} from {minimum} to {maximum}"
    if not is_valid:
        raise InvalidValue(field.name, value, expected)


def is_number(value: object) -> bool:
    """Return whether the value is a number that is safe in arithmetic with times and shares."""
    return type(value) in (int, float) and (value == math.inf or abs(value) < 1e18)  # type: ignore[arg-type]
