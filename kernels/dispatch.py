"""Which implementation runs an op: Triton on a GPU; elsewhere C, for the ops that have it, where a compiler was found,
and torch where none was. Chosen by where the tensors lie, and torch for a format that has no native code.

`using` forces one: tests run the Triton kernels on CPU tensors under Triton's interpreter, benches compare all.
Triton is no dependency of a CPU installation, so kernels take `triton`, `tl` and `jit` from here; without Triton a
kernel is a placeholder that says what is missing when it is launched.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from torch import Tensor

from kernels.errors import KernelError
from kernels.formats import KvFormat
from kernels.native.library import is_ready, status

__all__ = ["HAS_TRITON", "IS_INTERPRETED", "Implementation", "implementation", "jit", "tl", "triton", "using"]

Implementation = Literal["torch", "triton", "native"]

_forced: ContextVar[Implementation | None] = ContextVar("kernels_implementation", default=None)

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

HAS_TRITON = triton is not None
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


class _Missing:
    """Stands for a kernel where Triton is not installed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__name__ = function.__name__

    def __getitem__(self, grid: object) -> Any:
        raise KernelError(f"{self.__name__} needs Triton, which is not installed here: pip install triton")


def jit(function: Callable[..., Any]) -> Any:
    """Triton's `jit`, or a placeholder."""
    return triton.jit(function) if HAS_TRITON else _Missing(function)


def implementation(tensor: Tensor, *kv_formats: KvFormat, has_native: bool = False) -> Implementation:
    """What runs an op on this tensor in these formats. `has_native`: whether the op is there in C too."""
    if not all(kv_format.is_native for kv_format in kv_formats):
        return "torch"
    forced = _forced.get() or ("triton" if tensor.is_cuda else "native")
    if forced != "native":
        return forced
    return "native" if has_native and tensor.is_cpu and is_ready() else "torch"


@contextmanager
def using(name: Implementation) -> Iterator[None]:
    """Within it every op runs in this implementation; "native": those that are there in C. Raises KernelError."""
    if name == "native" and not is_ready():
        raise KernelError(f"no kernels in C: {status()}")
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)
