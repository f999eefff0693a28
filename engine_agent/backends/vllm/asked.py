"""Our fields of a request in vLLM's messages: `SamplingParams.extra_args["luminet"]`, plain types only.

Standard library only. Our own server sets these fields; values that a client could have written must not be trusted.
With vLLM's own server, a request without the secret of our middleware (`front`) belongs to no namespace
(`governor.py`).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from engine_agent.engine.outputs import Admission

FIELD = "luminet"
Said = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    namespace: str
    kv_format: str | None = None  # None: the policy's
    salt: str = field(default="", repr=False)  # the client's, in hexadecimal digits
    ttl_seconds: float | None = None
    kind: str = "customer"  # `sibling`: a further choice of a prompt that is already counted
    elsewhere_tokens: int = 0
    room_for_tokens: int = 0  # for an answer with a bound: a request that can never get this room is refused
    is_told: bool = False  # reported at its admission, before the first token
    front: str = field(default="", repr=False)  # the secret of our middleware, in vLLM's own server

    def packed(self) -> dict[str, Any]:
        return {FIELD: asdict(self)}

    @classmethod
    def unpacked(cls, extra_args: Said | None) -> "Asked | None":
        """Return the fields, or None if there are none."""
        packed_fields = (extra_args or {}).get(FIELD)
        return cls(**packed_fields) if isinstance(packed_fields, Mapping) else None


def admission_packed(admission: Admission) -> dict[str, Any]:
    packed_fields = {field.name: getattr(admission, field.name) for field in fields(admission)}
    return {**packed_fields, "missed": dict(admission.missed)}


def admission_unpacked(packed_fields: Said) -> Admission:
    return Admission(**packed_fields)
