"""Matrix products whose rows do not affect each other.

**The bits of a row's product do not depend on the number of rows.** A prefix hit computes fewer rows than a miss and
must write the same bytes. On a CPU, products of one to three rows use other kernels than larger ones (measured, see
docs/quality.md), so rows are padded to a multiple of `ROWS`; then no thread gets fewer rows either.

On a CPU, weights are stored in oneDNN's layout. Eight rows take less than half as long as with a plain weight, which
would be converted for each product, and larger products gain too.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

ROWS = 4  # matrix products of a multiple of these many rows agree to the bit, row by row, at 1 to 8 threads
ROWS_ON_GPU = 64  # cuBLAS chooses by the number of rows; not measured yet
PACKED_FOR_ROWS = 64  # the number of rows oneDNN should expect; measured: 8 to 256 give the same speed and bits


class Matrix(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """Return `x @ weight.T + bias` for x [rows, columns]."""
        ...


@dataclass(frozen=True, slots=True)
class PlainMatrix:
    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        missing = _missing(x)
        product = functional.linear(_filled(x, missing), self.weight, self.bias)
        return product[: len(x)] if missing else product


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    weight: Tensor  # in oneDNN's layout
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        missing = _missing(x)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            _filled(x, missing), self.weight, self.bias, "none", [], ""
        )
        return product[: len(x)] if missing else product


def matrix(weight: Tensor, bias: Tensor | None = None) -> Matrix:
    """Return the product with this weight. The caller need not keep the weight."""
    if not can_pack(weight):
        return PlainMatrix(weight, bias)
    return PackedMatrix(torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR_ROWS), bias)


def can_pack(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32


def _missing(x: Tensor) -> int:
    return -len(x) % (ROWS_ON_GPU if x.is_cuda else ROWS)


def _filled(x: Tensor, missing: int) -> Tensor:
    return functional.pad(x, (0, 0, 0, missing)) if missing else x
