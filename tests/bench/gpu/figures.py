"""From milliseconds to the units of rows H1 and H2, and what an H200 should reach. Pure."""

from collections.abc import Sequence

from tests.bench.figures import Target

H1_TERABYTES = {"bf16": 3.8, "fp8": 3.4, "int8": 3.2, "int4": 2.0}  # a second, on an H200
H2_SHARE = Target(">=", 0.55)  # of contiguous attention in bf16


def terabytes_a_second(moved_bytes: int, milliseconds: Sequence[float]) -> list[float]:
    return [moved_bytes / one / 1e9 for one in milliseconds]


def teraflops(flops: int, milliseconds: Sequence[float]) -> list[float]:
    return [flops / one / 1e9 for one in milliseconds]


def shares(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Pair by pair."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def h1_target(gpu: str | None, kv_format: str, rows: int, context: int) -> Target | None:
    """NUMBERS.md speaks of an H200 and of 32 × 16k; elsewhere the share of the copy has to say it."""
    is_meant = gpu is not None and "H200" in gpu and (rows, context) == (32, 16_384)
    return Target(">=", H1_TERABYTES[kv_format]) if is_meant and kv_format in H1_TERABYTES else None
