"""Whose a request is, as it travels in vLLM's own messages: `SamplingParams.extra_args["luminet"]`, plain types alone.

Standard library only. Nothing here is to be trusted that a client could have written: our own server sets it. Where
vLLM's own server asks, what lacks the secret of our part in it (`front`) is nobody's (`governor.py`).
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
    kind: str = "customer"  # `sibling`: a further choice of a prompt, which is counted already
    elsewhere_tokens: int = 0
    room_for_tokens: int = 0  # of its answer, where it has a bound: a request that could never have them is refused
    is_told: bool = False  # of its admission, before the first token
    front: str = field(default="", repr=False)  # the secret of who says all this, in vLLM's own server

    def packed(self) -> dict[str, Any]:
        return {FIELD: asdict(self)}

    @classmethod
    def unpacked(cls, extra_args: Said | None) -> "Asked | None":
        """None: it says nothing of whose it is."""
        said = (extra_args or {}).get(FIELD)
        return cls(**said) if isinstance(said, Mapping) else None


def admission_packed(admission: Admission) -> dict[str, Any]:
    said = {one.name: getattr(admission, one.name) for one in fields(admission)}
    return {**said, "missed": dict(admission.missed)}


def admission_unpacked(said: Said) -> Admission:
    return Admission(**said)
