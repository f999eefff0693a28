"""Bodies for the calculator: the arguments and results of `kernels.calculator`, with their bounds."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from controlplane.api.schemas.base import Given, Taken, example
from kernels.calculator.asked import asked, described, document
from kernels.calculator.calculating import calculate
from kernels.calculator.question import DEFAULT_RESERVE, DEFAULT_UTILISATION, MOST_GPUS, MOST_REQUESTS
from kernels.models.presets import preset_shape
from kernels.shapes import MOST_BYTES, MOST_PARAMETERS, MOST_TOKENS

Word = Annotated[str, StringConstraints(max_length=100)]
Memory = Annotated[int, Field(ge=1, le=MOST_BYTES)]
Bytes = Annotated[int, Field(ge=0, le=MOST_BYTES)]
Parameters = Annotated[int, Field(ge=1, le=MOST_PARAMETERS)]
QUESTION: dict[str, Any] = {
    "model": "llama-3.1-70b",
    "kv_dtypes": ["fp8", "int4"],
    "context_tokens": 131_072,
    "tensor_parallel": 4,
    "accelerator": "h200",
}
_ASKED = asked(**QUESTION)
ANSWER = document(_ASKED.shape, calculate(_ASKED))
MODEL = described(preset_shape("llama-3.1-70b"))


class CacheQuestion(Taken):
    """Either `model` or `config`. For what fits: `accelerator`, or `memory_bytes` and the bandwidth of another."""

    model_config = ConfigDict(json_schema_extra=example(**QUESTION))

    model: Word | None = Field(default=None, description="The slug of a model that `/models` lists.")
    config: dict[str, Any] | None = Field(default=None, description="A Hugging Face `config.json`, as it is.")
    kv_dtypes: Annotated[list[Word], Field(min_length=1, max_length=50)] | None = Field(
        default=None, description='The formats to count; null: those of policies; `["all"]`: also those of others.'
    )
    context_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = Field(
        default=None, description="Of each request; null: 8,192, or what the model was made for where that is less."
    )
    concurrency: int = Field(default=1, ge=1, le=MOST_REQUESTS, description="Requests at once.")
    shared_prefix_tokens: int = Field(
        default=0, ge=0, le=MOST_TOKENS, description="With how many tokens all of them begin: held once."
    )
    tensor_parallel: int = Field(default=1, ge=1, le=MOST_GPUS, description="GPUs that share the model.")
    respect_windows: bool = Field(
        default=True, description="Whether layers with a window let go of older tokens; false: they keep them."
    )
    accelerator: Word | None = Field(
        default=None, description="`a100`, `b200`, `b300`, `h100`, `h200`, `l40s`, `mi300x` or `rtx-4090`."
    )
    memory_bytes: Memory | None = Field(default=None, description="Of another accelerator, each.")
    bandwidth_bytes_per_second: Annotated[float, Field(gt=0, le=MOST_BYTES)] | None = Field(
        default=None, description="Of that memory."
    )
    memory_utilisation: float = Field(
        default=DEFAULT_UTILISATION,
        gt=0,
        le=1,
        description="How much of the memory weights and cache may take together.",
    )
    reserve_bytes: Bytes = Field(default=DEFAULT_RESERVE, description="For activations, on each.")
    weights_dtype: Word | None = Field(
        default=None, description="`fp32`, `bf16`, `fp8`, `int8`, `nvfp4`, `mxfp4` or `int4`; null: as published."
    )
    weights_bytes: Bytes | None = Field(default=None, description="All weights' size, where it is known better.")
    parameters: Parameters | None = Field(
        default=None, description="How many there are; null: as published, or as counted from the config."
    )
    active_parameters: Parameters | None = Field(default=None, description="Those that one token goes through.")


class LayersShown(Given):
    """Layers of one kind. `state_bytes` is one layer's, for each request; null: there is none, or it is not known."""

    kind: Literal["full", "window", "chunked", "latent", "shared", "state", "none"]
    count: int
    query_heads: int
    kv_heads: int
    key_size: int
    value_size: int
    window_tokens: int | None
    state_bytes: int | None


class ModelShown(Given):
    """Where layers differ, heads and sizes are the largest. A latent vector (MLA) is a key without a value."""

    model_config = ConfigDict(json_schema_extra=example(**MODEL))

    name: str
    source: str
    attention: Literal["MHA", "GQA", "MQA", "MLA", "none"]
    layer_count: int
    query_heads: int
    kv_heads: int
    key_size: int
    value_size: int
    hidden_size: int | None
    context_tokens: int | None = Field(description="What it was made for.")
    parameters: int | None
    active_parameters: int | None
    parameters_source: Literal["published", "computed", "given"] | None
    weights_dtype: str
    layers: list[LayersShown]


class ModelListed(ModelShown):
    model_config = ConfigDict(json_schema_extra=example(slug="llama-3.1-70b", **MODEL))

    slug: str


class FormulaShown(Given):
    """What 2 × layers × hidden_size × 2 bytes would say, and by which factor that is wrong."""

    bytes_per_token: int
    actual_bytes_per_token: int
    factor: float
    message: str


class MachineShown(Given):
    """One accelerator of those that share the model; `pool_bytes` is what is left for the cache."""

    accelerator: str
    memory_bytes: int
    bandwidth_bytes_per_second: float
    memory_utilisation: float
    usable_bytes: int
    weights_dtype: str | None
    weights_bytes: int
    reserve_bytes: int
    pool_bytes: int


class KindShown(Given):
    kind: str
    layers: int
    kv_heads: int
    window_tokens: int | None
    bytes_per_token: int
    bytes_per_request: int


class RatesShown(Given):
    """Null where that many requests do not fit."""

    one_request: float | None
    at_concurrency: float | None
    full_pool: float | None


class FormatShown(Given):
    """One KV format. What needs an accelerator is null without one."""

    kv_dtype: str
    is_offered: bool = Field(description="Whether a policy may name it.")
    key_vector_bytes: int
    value_vector_bytes: int
    times_smaller: float = Field(description="Than `bf16`.")
    bytes_per_token: int
    bytes_per_token_per_gpu: int
    bytes_per_request: int
    bytes_per_request_per_gpu: int
    residual_bytes_per_request: int = Field(description="Newest tokens kept in BF16 besides, at the most.")
    bytes_at_concurrency: int
    bytes_at_concurrency_per_gpu: int
    tokens_that_fit: int | None = Field(description="In whole blocks that every layer keeps.")
    requests_that_fit: int | None
    concurrency_fits: bool | None
    tokens_per_second: RatesShown
    layer_kinds: list[KindShown]


class CacheCounted(Given):
    """`notes` say what was assumed, and what to beware of."""

    model_config = ConfigDict(json_schema_extra=example(**ANSWER))

    model: ModelShown
    context_tokens: int
    concurrency: int
    shared_prefix_tokens: int
    tensor_parallel: int
    respect_windows: bool
    block_tokens: int
    hidden_size_formula: FormulaShown | None
    machine: MachineShown | None
    rows: list[FormatShown]
    notes: list[str]
