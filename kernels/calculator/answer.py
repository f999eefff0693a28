"""What comes out: one row for each KV format, in bytes. The same words in JSON over REST and from the command line."""

from dataclasses import dataclass

from kernels.shapes import LayerKind


@dataclass(frozen=True, slots=True)
class Machine:
    """What one GPU of those that serve the model has for keys and values."""

    accelerator: str
    memory_bytes: int
    bandwidth_bytes_per_second: float
    memory_utilisation: float
    usable_bytes: int
    weights_dtype: str | None  # None: weights were given in bytes
    weights_bytes: int
    reserve_bytes: int
    pool_bytes: int


@dataclass(frozen=True, slots=True)
class HiddenSizeFormula:
    """2 × layers × hidden_size × 2 bytes: right where every layer is full and every query head keeps its own."""

    bytes_per_token: int
    actual_bytes_per_token: int
    factor: float
    message: str


@dataclass(frozen=True, slots=True)
class KindBytes:
    """What the layers of one kind add, over all GPUs together and without copies."""

    kind: LayerKind
    layers: int
    kv_heads: int
    window_tokens: int | None
    bytes_per_token: int
    bytes_per_request: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Upper bounds: bandwidth over the bytes a step must read. None where that many requests do not fit."""

    one_request: float | None
    at_concurrency: float | None
    full_pool: float | None


@dataclass(frozen=True, slots=True)
class FormatRow:
    """One KV format. What needs an accelerator is None without one."""

    kv_dtype: str
    is_offered: bool
    key_vector_bytes: int
    value_vector_bytes: int
    times_smaller: float  # than bf16
    bytes_per_token: int
    bytes_per_token_per_gpu: int
    bytes_per_request: int
    bytes_per_request_per_gpu: int
    residual_bytes_per_request: int
    bytes_at_concurrency: int
    bytes_at_concurrency_per_gpu: int
    tokens_that_fit: int | None
    requests_that_fit: int | None
    concurrency_fits: bool | None
    tokens_per_second: Rates
    layer_kinds: tuple[KindBytes, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    context_tokens: int
    concurrency: int
    shared_prefix_tokens: int
    tensor_parallel: int
    respect_windows: bool
    block_tokens: int
    hidden_size_formula: HiddenSizeFormula | None
    machine: Machine | None
    rows: tuple[FormatRow, ...]
    notes: tuple[str, ...]
