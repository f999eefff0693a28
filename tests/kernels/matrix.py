"""Matrices of the kernels' tests: formats, shapes and implementations, written once.

`make test` runs the corner cases and the fewest further rows that cover all pairs of values. `make test-kernels` sets
LUMINET_KERNELS=full and runs the whole product.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from math import prod
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import pytest

ENVIRONMENT = "LUMINET_KERNELS"
FULL = "full"
# Values of the fixtures in tests/unit/kernels/conftest.py, and of the axes that have their names.
IMPLEMENTATIONS: Mapping[str, Sequence[str]] = {
    "implementation": ("torch", "triton"),
    "each_implementation": ("torch", "native", "triton"),
    "on_cpu": ("torch", "native"),
}

Row = tuple[Any, ...]
Test = TypeVar("Test", bound=Callable[..., object])


class Decorator(Protocol):
    """What keeps a test's type."""

    def __call__(self, function: Test, /) -> Test: ...


class Matrix(NamedTuple):
    """The rows of one test, and how many the whole product has."""

    axes: Mapping[str, Sequence[Any]]
    corners: Sequence[Row]
    reduced: Sequence[Row]

    @property
    def full_size(self) -> int:
        return prod(len(values) for values in self.axes.values())


def is_full() -> bool:
    return os.environ.get(ENVIRONMENT) == FULL


def matrix(axes: Mapping[str, Iterable[Any]], *, corners: Sequence[Row] = (), strength: int = 2) -> Decorator:
    """Parametrize a test with the rows of a product.

    A key of `axes` names one argument, or several that vary together ("heads, head_size"). `strength` is the number
    of axes whose values meet in every combination. Use 1 for two axes that the code treats independently.
    """
    values = {names: list(axis) for names, axis in axes.items()}
    reduced = covering_rows(list(values.values()), strength=strength, corners=corners)
    described = Matrix(values, corners, reduced)
    rows = list(product(*values.values())) if is_full() else reduced
    names = [name.strip() for key in values for name in key.split(",")]
    arguments = [_flat(row, list(values)) for row in rows]
    decorate = pytest.mark.parametrize(
        names,
        arguments,
        ids=["-".join(map(str, row)) for row in arguments],
        indirect=[name for name in names if name in IMPLEMENTATIONS],
    )

    def decorated(function: Test) -> Test:
        vars(function)["matrix"] = described
        return cast(Test, decorate(function))

    return decorated


def covering_rows(axes: Sequence[Sequence[Any]], *, strength: int = 2, corners: Sequence[Row] = ()) -> list[Row]:
    """Return the corners, then rows until every combination of values from `strength` axes is in a row.

    Greedy: the next row covers the most combinations that are still missing; of equals, the row whose values were
    used least, and of these the first.
    """
    places = [tuple(enumerate(row)) for row in product(*(range(len(axis)) for axis in axes))]
    values_at = dict(zip(product(*axes), places, strict=True))
    for corner in corners:
        if corner not in values_at:
            raise ValueError(f"{corner} is not a row of the product")
    parts = {row: set(combinations(values, strength)) for row, values in values_at.items()}
    rows = list(dict.fromkeys(corners))
    missing = set().union(*parts.values()).difference(*(parts[row] for row in rows))
    used = Counter(value for row in rows for value in values_at[row])
    while missing:
        row = max(parts, key=lambda row: (len(parts[row] & missing), -sum(used[value] for value in values_at[row])))
        rows.append(row)
        missing -= parts[row]
        used.update(values_at[row])
    return rows


def _flat(row: Row, keys: Sequence[str]) -> Row:
    """Give each argument its value: an axis that names several has tuples."""
    return tuple(value for part, key in zip(row, keys, strict=True) for value in (part if "," in key else (part,)))
