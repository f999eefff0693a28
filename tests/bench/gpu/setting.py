"""What the rows of `make bench-gpu` run on: the GPU that is here or, in a dry run, Triton's interpreter at tiny sizes.

A dry run shows that all of it would work. Its figures mean nothing.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from tests.bench.gpu.clocks import Clock, GpuClock, HostClock
from tests.bench.kernel_inputs import Shape

# The shape of Llama 3.1 8B: what rows H1 and H2 speak of. One layer is measured, for attention reads no other.
HEADS, KV_HEADS, HEAD_SIZE = 32, 8, 128


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of everything that is checked and timed."""

    decoding: tuple[Shape, ...]
    prefilling: tuple[Shape, ...]
    check_heads: tuple[tuple[int, int], ...]  # head size, and query heads for one KV head
    check_kv_heads: int
    check_lengths: tuple[int, ...]
    check_chunks: tuple[tuple[int, int], ...]  # of rows that are prefilled: length and how many of it are new
    tokens_written: int
    vectors_rotated: int
    pages: int
    page_bytes: int
    pages_converted: int
    flush_bytes: int  # more than any L2 cache holds
    prompt_tokens: int  # of row E2
    template_tokens: int  # of row H3
    together: int  # requests at once, at most, in row H3
    repetitions: int

    @property
    def head_sizes(self) -> tuple[int, ...]:
        """The different ones, the main one first."""
        return tuple(dict.fromkeys(head_size for head_size, _ in self.check_heads))


REAL = Sizes(
    decoding=(Shape(HEADS, KV_HEADS, HEAD_SIZE, 32, 16_384), Shape(HEADS, KV_HEADS, HEAD_SIZE, 1, 4_096)),
    prefilling=tuple(Shape(HEADS, KV_HEADS, HEAD_SIZE, 1, tokens, tokens) for tokens in (4_096, 16_384)),
    check_heads=((128, 4), (128, 8), (64, 4)),  # of 8B, of 70B, of a small model
    check_kv_heads=8,
    check_lengths=(1, 16, 4_097, 16_384),
    check_chunks=((4_097, 1_000), (1_024, 1_024), (17, 1)),
    tokens_written=16_384,
    vectors_rotated=2**20,
    pages=512,
    page_bytes=2**21,
    pages_converted=4_096,
    flush_bytes=2**28,
    prompt_tokens=4_096,
    template_tokens=6_000,
    together=64,
    repetitions=20,
)
TINY = Sizes(
    decoding=(Shape(8, 2, 32, 2, 40),),
    prefilling=(Shape(8, 2, 32, 1, 33, 33),),
    check_heads=((32, 4),),
    check_kv_heads=2,
    check_lengths=(1, 33),
    check_chunks=((33, 5),),
    tokens_written=20,
    vectors_rotated=33,
    pages=3,
    page_bytes=4_112,
    pages_converted=2,
    flush_bytes=2**10,
    prompt_tokens=64,
    template_tokens=64,
    together=2,
    repetitions=2,
)


@dataclass(frozen=True, slots=True)
class Setting:
    device: torch.device
    sizes: Sizes
    clock: Clock
    dtype: torch.dtype  # of queries, and of what contiguous attention reads
    gpu: str | None = None  # its name; None in a dry run
    out: Path | None = None  # where CHECK keeps what it has found so far; None keeps nothing
    is_resumed: bool = False

    @property
    def is_dry(self) -> bool:
        return self.gpu is None


def gpu_setting(out: Path | None = None, *, is_resumed: bool = False) -> Setting:
    device = torch.device("cuda")
    name = torch.cuda.get_device_name(device)
    return Setting(device, REAL, GpuClock(REAL.flush_bytes), torch.bfloat16, name, out, is_resumed)


def dry_setting() -> Setting:
    return Setting(torch.device("cpu"), TINY, HostClock(), torch.bfloat16)


def fitted(shape: Shape, bytes_a_row: int, free_bytes: int) -> Shape:
    """The shape with as many rows, halved as often as it takes, as fit into the memory that is free; at least one."""
    rows = shape.rows
    while rows > 1 and rows * bytes_a_row > free_bytes:
        rows //= 2
    return Shape(shape.heads, shape.kv_heads, shape.head_size, rows, shape.context, shape.new)


_chosen: list[Setting] = []


def where() -> str:
    """For a row's notes: the table's headline has the driver, where there is an nvidia-smi to ask."""
    return (
        f"{here().gpu or 'a dry run: no figure means anything'}; torch {torch.__version__}, CUDA {torch.version.cuda}"
    )


def choose(setting: Setting) -> None:
    """Before rows run."""
    _chosen[:] = [setting]


def here() -> Setting:
    return _chosen[0]
