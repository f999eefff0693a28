"""What to count: a model, formats, how much context for how many requests, and on what. Impossible ones are refused."""

from dataclasses import dataclass
from fractions import Fraction

from kernels.calculator.accelerators import Accelerator
from kernels.formats import KvFormat
from kernels.shapes import MOST_BYTES, MOST_TOKENS, ModelShape, is_number, refused, whole

DEFAULT_CONTEXT = 8192
DEFAULT_UTILISATION = 0.92
DEFAULT_RESERVE = 2**30
MOST_REQUESTS = 10**7
MOST_GPUS = 1024
WEIGHT_BITS: dict[str, Fraction] = {
    "fp32": Fraction(32),
    "bf16": Fraction(16),
    "fp8": Fraction(8),
    "int8": Fraction(8),
    "nvfp4": Fraction(9, 2),  # 4 bits, and 8 for every 16
    "mxfp4": Fraction(17, 4),  # 4 bits, and 8 for every 32
    "int4": Fraction(33, 8),  # 4 bits, and 16 for every 128
}


@dataclass(frozen=True, slots=True)
class Question:
    """What to count. So many requests at once, each with `context_tokens`, of which the first may be shared."""

    shape: ModelShape
    formats: tuple[KvFormat, ...]
    context_tokens: int | None = None
    concurrency: int = 1
    shared_prefix_tokens: int = 0
    tensor_parallel: int = 1
    respect_windows: bool = True
    accelerator: Accelerator | None = None
    memory_utilisation: float = DEFAULT_UTILISATION
    reserve_bytes: int = DEFAULT_RESERVE
    weights_dtype: str | None = None
    weights_bytes: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.context_tokens is not None:
            whole("context_tokens", self.context_tokens, least=1, most=MOST_TOKENS)
        whole("concurrency", self.concurrency, least=1, most=MOST_REQUESTS)
        whole("shared_prefix_tokens", self.shared_prefix_tokens, least=0, most=MOST_TOKENS)
        if self.shared_prefix_tokens > self.context:
            raise refused("shared_prefix_tokens", self.shared_prefix_tokens, f"at most {self.context:,}, the context")
        whole("tensor_parallel", self.tensor_parallel, least=1, most=MOST_GPUS)
        if self.tensor_parallel > (self.shape.query_heads or MOST_GPUS):
            raise refused("tensor_parallel", self.tensor_parallel, f"at most {self.shape.query_heads}, the query heads")
        whole("reserve_bytes", self.reserve_bytes, least=0, most=MOST_BYTES)
        if self.weights_bytes is not None:
            whole("weights_bytes", self.weights_bytes, least=0, most=MOST_BYTES)
        if not is_number(self.memory_utilisation, most=1):
            raise refused("memory_utilisation", self.memory_utilisation, "a number above 0 and up to 1")
        if self.weights_dtype is not None and self.weights_dtype not in WEIGHT_BITS:
            raise refused("weights_dtype", self.weights_dtype, f"one of {', '.join(WEIGHT_BITS)}")

    @property
    def context(self) -> int:
        """What was asked for, or as much of 8,192 tokens as the model was made for."""
        if self.context_tokens is not None:
            return self.context_tokens
        return min(DEFAULT_CONTEXT, self.shape.context_tokens or DEFAULT_CONTEXT)
