"""What of a model decides how large its KV cache is: its layers by kind, their heads and sizes, and its parameters.

A shape is read from a Hugging Face config in `configs.py`; the models with a name of their own are in `presets.py`.
Standard library only: the control plane imports this.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from kernels.errors import InvalidArgument

LayerKind = Literal["full", "window", "chunked", "latent", "shared", "state", "none"]
ParametersSource = Literal["published", "computed", "given"]
# What keeps keys and values of tokens. The others: another layer's are read; a state; nothing.
KEEPING: tuple[LayerKind, ...] = ("full", "window", "chunked", "latent")

MOST_LAYERS = 4096
MOST_KINDS = 64  # of layers, in one config
MOST_HEADS = 8192
MOST_SIZE = 65_536
MOST_TOKENS = 10**9
MOST_BYTES = 10**18
MOST_PARAMETERS = 10**16


class Shown(str):
    """Stands for a value in an error: it is shown as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def clipped(value: object) -> object:
    """What somebody gave, short enough and harmless enough for an error."""
    if isinstance(value, str):
        return value if len(value) <= 60 else value[:59] + "…"
    if isinstance(value, list | tuple):
        return Shown(f"a list of {len(value)}")
    if isinstance(value, dict):
        return Shown("an object")
    if type(value) is int and abs(value) >= 10**20:
        return Shown("a number beyond 10^20")
    if value is None or isinstance(value, bool):
        return Shown("null" if value is None else str(value).lower())  # as JSON says it
    return value if isinstance(value, int | float) else Shown(f"a {type(value).__name__}")


def refused(field: str, value: object, wanted: str) -> InvalidArgument:
    return InvalidArgument(field, clipped(value), wanted)


def whole(field: str, value: object, *, least: int, most: int) -> int:
    """The value, when it is a whole number in these bounds. `True` and `4.0` are none."""
    if type(value) is not int or not least <= value <= most:
        raise refused(field, value, f"a whole number from {least:,} to {most:,}")
    return value


def is_number(value: object, *, most: int) -> bool:
    """Whether it is one above 0 and up to this: no NaN, no infinity, no `True`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most


@dataclass(frozen=True, slots=True)
class Layers:
    """So many layers of one kind. Sizes are elements of one head's key and value; `latent` is one key and no value."""

    kind: LayerKind
    count: int
    query_heads: int = 0
    kv_heads: int = 0
    key_size: int = 0
    value_size: int = 0
    window_tokens: int | None = None  # of `window` and `chunked`: no more tokens are kept
    state_bytes: int | None = None  # of `state`: one layer's, for each request; None: not known

    def __post_init__(self) -> None:
        if self.kind not in get_args(LayerKind):
            raise refused("kind", self.kind, f"one of {', '.join(get_args(LayerKind))}")
        whole("count", self.count, least=1, most=MOST_LAYERS)
        if self.keeps_tokens:
            self._check_heads()
        if self.kind in ("window", "chunked"):
            whole("window_tokens", self.window_tokens, least=1, most=MOST_TOKENS)
        if self.state_bytes is not None:
            whole("state_bytes", self.state_bytes, least=0, most=MOST_BYTES)

    def _check_heads(self) -> None:
        whole("query_heads", self.query_heads, least=1, most=MOST_HEADS)
        whole("kv_heads", self.kv_heads, least=1, most=MOST_HEADS)
        whole("key_size", self.key_size, least=1, most=MOST_SIZE)
        whole("value_size", self.value_size, least=0 if self.kind == "latent" else 1, most=MOST_SIZE)
        check_groups("kv_heads", self.kv_heads, self.query_heads)

    @property
    def keeps_tokens(self) -> bool:
        return self.kind in KEEPING


def check_groups(field: str, kv_heads: int, query_heads: int) -> None:
    """Every KV head serves as many query heads as any other."""
    if kv_heads > query_heads:
        raise refused(field, kv_heads, f"at most {query_heads:,}, the query heads")
    if query_heads % kv_heads:
        raise refused(field, kv_heads, f"a divisor of {query_heads:,}, the query heads")


@dataclass(frozen=True, slots=True)
class Parameters:
    """`active` are read for one token; they are fewer than `total` where experts are chosen from."""

    total: int
    active: int
    source: ParametersSource
    experts: int = 0  # of one layer that has any, and how many of them a token goes through
    experts_per_token: int = 0

    def __post_init__(self) -> None:
        whole("parameters", self.total, least=1, most=MOST_PARAMETERS)
        whole("active_parameters", self.active, least=1, most=MOST_PARAMETERS)
        if self.active > self.total:
            raise refused("active_parameters", self.active, f"at most {self.total:,}, all parameters")


@dataclass(frozen=True, slots=True)
class ModelShape:
    """One model. What is not known is None; `notes` say what was assumed on the way."""

    name: str
    layers: tuple[Layers, ...]
    source: str
    hidden_size: int | None = None
    context_tokens: int | None = None
    parameters: Parameters | None = None
    weights_dtype: str = "bf16"
    notes: tuple[str, ...] = ()

    @property
    def layer_count(self) -> int:
        return sum(one.count for one in self.layers)

    @property
    def keeping(self) -> tuple[Layers, ...]:
        """The layers that keep keys and values of tokens."""
        return tuple(one for one in self.layers if one.keeps_tokens)

    @property
    def query_heads(self) -> int:
        """Where layers differ: the most."""
        return max((one.query_heads for one in self.keeping), default=0)

    @property
    def kv_heads(self) -> int:
        return max((one.kv_heads for one in self.keeping), default=0)

    @property
    def key_size(self) -> int:
        return max((one.key_size for one in self.keeping), default=0)

    @property
    def value_size(self) -> int:
        return max((one.value_size for one in self.keeping), default=0)

    @property
    def attention(self) -> str:
        """MHA, GQA, MQA, MLA, or none."""
        if any(one.kind == "latent" for one in self.layers):
            return "MLA"
        if not self.keeping:
            return "none"
        if all(one.kv_heads == one.query_heads for one in self.keeping):
            return "MHA"
        return "MQA" if all(one.kv_heads == 1 for one in self.keeping) else "GQA"
