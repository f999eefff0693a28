"""What an agent says it is: checked when it enrols, and whenever it says it anew. Pure.

Members that we do not know are left out: an agent may be newer than the control plane. So are KV formats that no policy
can name: an engine that computes in float32 has pages for that too. Nothing here is trusted further than that: it is
what people are shown, and what routing and publishing count on being able to do.
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
MOST_NUMBER = 2**53  # beyond that, JSON's readers disagree


def _address_check(value: str) -> str:
    """Where gateways reach it: a scheme, a host and a port, and nothing that could lead elsewhere."""
    try:
        parts = urlsplit(value)
        is_whole = bool(parts.hostname) and parts.port is not None and parts.scheme in ("http", "https")
    except ValueError:
        is_whole = False
    if not is_whole or parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("must be http://host:port or https://host:port")
    return value.rstrip("/")


def _of_policies(told: Any) -> Any:
    """Formats in a list or as a table's names, without those that nobody can ask for."""
    if isinstance(told, dict):
        return {name: value for name, value in told.items() if name in OFFERED}
    if isinstance(told, list):
        return [one for one in told if not isinstance(one, str) or one in OFFERED]
    return told


def _known_aliases(told: Any) -> Any:
    """Without those either side of which nobody can ask for."""
    if not isinstance(told, dict):
        return told
    return {name: as_ for name, as_ in _of_policies(told).items() if not isinstance(as_, str) or as_ in OFFERED}


def _understood(declared: Any) -> dict[str, Any]:
    """Of the fields and grades that we know: what else a newer agent declares is ignored."""
    return enforcement_encode(enforcement_decode(declared))


# What cannot be printed is nothing that people should be shown, and PostgreSQL keeps no NUL.
Text = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Address = Annotated[str, StringConstraints(max_length=300, pattern=r"^[\x21-\x7e]+$"), AfterValidator(_address_check)]
# Also one that is not installed here.
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
    backend_version: Text = ""  # of what computes; a sidecar of before says none
    version: Text
    address: Address | None = None
    accelerator: Accelerator | None = None
    models: Annotated[list[Model], Field(max_length=MOST_MODELS)] = []
    kv_dtypes: Formats = []
    computed_as: Aliases = {}  # formats that are computed as another, with that one
    enforcement: Enforcements = {}  # of policy fields, each with its grade; an older agent declares none
    pool: Pool = Pool()
    labels: Labels = {}
    python: Text = ""
    platform: Text = ""


def about_read(told: Any) -> Mapping[str, Any]:
    """As it is stored, or MalformedRequest naming every field that is to blame."""
    try:
        return About.model_validate(told).model_dump(mode="json")
    except ValidationError as error:
        found = field_problems([{**one, "loc": ("about", *one["loc"])} for one in error.errors()], root="about")
        raise MalformedRequest(list(found)) from None
