"""What a namespace asks of the cache: the effective policy as the block manager reads it, checked once.

Where a policy comes from, and what an organisation may write into one, is the control plane's business.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from engine_agent.cache.errors import InvalidValue

TtlMode = Literal["sliding", "absolute"]
Offload = Literal["none", "host", "disk"]

LONGEST_TTL_SECONDS = 604_800
SMALLEST_WEIGHT, LARGEST_WEIGHT = 0.001, 1000
SHARES = ("reserved_share", "limit_share", "pin_share")


@dataclass(frozen=True, slots=True)
class NamespacePolicy:
    prefix_caching: bool = True
    ttl_seconds: float = 300
    ttl_mode: TtlMode = "sliding"
    max_age_seconds: float = 86_400
    kv_dtype: str = "fp8"
    request_kv_dtypes: tuple[str, ...] = ("int4",)
    reserved_share: float = 0.0
    limit_share: float = 1.0
    weight: float = 1.0
    pin_share: float = 0.0
    offload: Offload = "none"

    def __post_init__(self) -> None:
        if type(self.prefix_caching) is not bool:
            raise InvalidValue("prefix_caching", self.prefix_caching, "true or false")
        _seconds_checked("ttl_seconds", self.ttl_seconds, LONGEST_TTL_SECONDS)
        _seconds_checked("max_age_seconds", self.max_age_seconds, math.inf)
        _choice_checked("ttl_mode", self.ttl_mode, get_args(TtlMode))
        _choice_checked("offload", self.offload, get_args(Offload))
        if type(self.kv_dtype) is not str or not self.kv_dtype:
            raise InvalidValue("kv_dtype", self.kv_dtype, "the name of a format")
        if type(self.request_kv_dtypes) is not tuple or not all(type(name) is str for name in self.request_kv_dtypes):
            raise InvalidValue("request_kv_dtypes", self.request_kv_dtypes, "names of formats")
        for name in SHARES:
            share = getattr(self, name)
            if not is_number(share) or not 0 <= share <= 1:
                raise InvalidValue(name, share, "a share from 0 to 1")
        if not is_number(self.weight) or not SMALLEST_WEIGHT <= self.weight <= LARGEST_WEIGHT:
            raise InvalidValue("weight", self.weight, f"a number from {SMALLEST_WEIGHT} to {LARGEST_WEIGHT}")
        if self.reserved_share > self.limit_share:
            raise InvalidValue("reserved_share", self.reserved_share, f"at most limit_share, {self.limit_share}")

    @classmethod
    def from_effective(cls, policy: Mapping[str, Any]) -> "NamespacePolicy":
        """From a snapshot's policy object. Other subsystems' fields are left alone, missing ones are the built-ins."""
        known = {field.name: policy[field.name] for field in fields(cls) if field.name in policy}
        if isinstance(formats := known.get("request_kv_dtypes"), list):
            known["request_kv_dtypes"] = tuple(formats)
        if known.get("max_age_seconds", 0) is None:  # as the policy says "no bound"
            known["max_age_seconds"] = math.inf
        return cls(**known)

    def idle_seconds(self) -> float:
        """How long after its last release a block stays matchable."""
        return self.ttl_seconds if self.ttl_mode == "sliding" else math.inf

    def age_seconds(self) -> float:
        """How long after its creation a block stays matchable, in use or not."""
        return self.max_age_seconds if self.ttl_mode == "sliding" else min(self.ttl_seconds, self.max_age_seconds)


POLICY_FIELDS = tuple(one.name for one in fields(NamespacePolicy))


def ttl_cap_checked(seconds: float | None) -> float:
    """A request's own TTL, which only shortens; infinity when it has none."""
    return math.inf if seconds is None else _seconds_checked("ttl_seconds", seconds, LONGEST_TTL_SECONDS)


def _seconds_checked(name: str, seconds: float, longest: float) -> float:
    if not is_number(seconds) or not 0 < seconds <= longest:
        bound = f" up to {longest:,.0f}" if longest < math.inf else ""
        raise InvalidValue(name, seconds, f"seconds above 0{bound}")
    return seconds


def _choice_checked(name: str, found: object, choices: tuple[str, ...]) -> None:
    if found not in choices:
        raise InvalidValue(name, found, f"one of {', '.join(choices)}")


def is_number(value: object) -> bool:
    """Whether it is one that arithmetic with times and shares can bear."""
    return type(value) in (int, float) and (value == math.inf or abs(value) < 1e18)  # type: ignore[arg-type]
