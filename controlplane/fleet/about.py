"""Validate an agent's description of itself, at enrolment and whenever the agent reports a new one. Pure.

Unknown members are dropped, because an agent may be newer than the control plane. So are KV formats that no policy can
name: an engine that computes in float32 has pages for that format too. The description is trusted no further than this:
people see it, and routing and publishing rely on it for what an agent can do.
"""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from controlplane.fleet.errors import MalformedRequest
from controlplane.fleet.labels import Labels
from engine_agent.contracts.enforcement import enforcement_decode, enforcement_encode
from kernels.formats import OFFERED
from tenants.policy import KvDtype, ModelName
from tenants.validation import field_problems

MOST_MODELS = 64
MOST_NUMBER = 2**53  # JSON parsers disagree about larger numbers


def _address_check(value: str) -> str:
    """Return the URL without a trailing slash. Only scheme, host and port are allowed: nothing may lead elsewhere."""
    try:
        parts = urlsplit(value)
        is_whole = bool(parts.hostname) and parts.port is not None and parts.scheme in ("http", "https")
    except ValueError:
        is_whole = False
    if not is_whole or parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("must be http://host:port or https://host:port")
    return value.rstrip("/")


def _of_policies(declared: Any) -> Any:
    """Drop the KV formats that no policy can name from a list, or from the keys of a table."""
    if isinstance(declared, dict):
        return {name: value for name, value in declared.items() if name in OFFERED}
    if isinstance(declared, list):
        return [kv_dtype for kv_dtype in declared if not isinstance(kv_dtype, str) or kv_dtype in OFFERED]
    return declared


def _known_aliases(declared: Any) -> Any:
    """Drop the pairs in which either format is one that no policy can name."""
    if not isinstance(declared, dict):
        return declared
    return {
        name: computed_as
        for name, computed_as in _of_policies(declared).items()
        if not isinstance(computed_as, str) or computed_as in OFFERED
    }


def _understood(declared: Any) -> dict[str, Any]:
    """Keep only the fields and grades that this version knows; a newer agent may declare more."""
    return enforcement_encode(enforcement_decode(declared))


# Reject unprintable characters: people read these texts, and PostgreSQL cannot store NUL.
Text = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Address = Annotated[str, StringConstraints(max_length=300, pattern=r"^[\x21-\x7e]+$"), AfterValidator(_address_check)]
# The backend need not be installed on the control plane.
Backend = Annotated[str, StringConstraints(max_length=40, pattern=r"^[a-z][a-z0-9_-]*$")]
Number = Annotated[int, Field(ge=0, le=MOST_NUMBER)]
Formats = Annotated[list[KvDtype], Field(max_length=16), BeforeValidator(_of_policies)]
BlockBytes = Annotated[dict[KvDtype, Number], Field(max_length=16), BeforeValidator(_of_policies)]
Enforcements = Annotated[dict[str, Any], BeforeValidator(_understood)]
Aliases = Annotated[dict[KvDtype, KvDtype], Field(max_length=16), BeforeValidator(_known_aliases)]


class _Told(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class Accelerator(_Told):
    name: Text
    memory_bytes: Number


class Model(_Told):
    name: ModelName
    revision: Text
    kv_dtypes: Formats
    context_tokens: Number


class Pool(_Told):
    capacity_bytes: Number = 0
    block_tokens: Number = 0
    block_bytes: BlockBytes = Field(default_factory=dict)


class About(_Told):
    backend: Backend
    backend_version: Text = ""  # of the backend; older sidecars do not report it
    version: Text
    address: Address | None = None
    accelerator: Accelerator | None = None
    models: Annotated[list[Model], Field(max_length=MOST_MODELS)] = []
    kv_dtypes: Formats = []
    computed_as: Aliases = {}  # format: the format that it is computed as
    enforcement: Enforcements = {}  # policy field: grade; an older agent declares none
    pool: Pool = Pool()
    labels: Labels = {}
    python: Text = ""
    platform: Text = ""


def about_read(about: Any) -> Mapping[str, Any]:
    """Return the description as it is stored, or raise MalformedRequest with every invalid field."""
    try:
        return About.model_validate(about).model_dump(mode="json")
    except ValidationError as error:
        problems = field_problems(
            [{**problem, "loc": ("about", *problem["loc"])} for problem in error.errors()], root="about"
        )
        raise MalformedRequest(list(problems)) from None
