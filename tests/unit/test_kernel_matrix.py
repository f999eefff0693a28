"""Reduced matrices: corner cases first, every pair of values, and nothing that changes from run to run."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest

from tests.kernels.matrix import ENVIRONMENT, FULL, covering_rows, matrix

AXES: Sequence[Sequence[Any]] = (["bf16", "fp8", "int4"], [(1, 64), (2, 80)], ["torch", "native"], [None, 7, 16, 17])


def missing_combinations(rows: Sequence[tuple[Any, ...]], axes: Sequence[Sequence[Any]], strength: int) -> list[Any]:
    """Count anew, without the helper: which combinations of values are in no row."""
    return [
        (places, values)
        for places in combinations(range(len(axes)), strength)
        for values in product(*(axes[place] for place in places))
        if not any(tuple(row[place] for place in places) == values for row in rows)
    ]


@pytest.mark.parametrize("strength", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "axes", [AXES, [*AXES, *AXES], [range(10), range(6), range(2)], [range(7), [0], range(5), [1]]]
)
def test_every_combination_of_values_is_covered(axes: Sequence[Sequence[Any]], strength: int) -> None:
    rows = covering_rows(axes, strength=strength)
    assert missing_combinations(rows, axes, strength) == []
    assert len(rows) == len(set(rows))
    assert set(rows) <= set(product(*axes))


def test_pairs_need_far_fewer_rows_than_the_product() -> None:
    assert len(covering_rows([range(10), range(6), range(2)])) == 60
    assert len(covering_rows([range(4)] * 4)) <= 24 < 4**4
    assert len(covering_rows([range(4), range(10)], strength=1)) == 10


def test_corners_come_first_and_count() -> None:
    corners = [("int4", (2, 80), "native", 17), ("fp8", (1, 64), "torch", None)]
    rows = covering_rows(AXES, corners=corners)
    assert rows[:2] == corners
    assert missing_combinations(rows, AXES, 2) == []
    assert len(rows) <= len(covering_rows(AXES)) + 2


def test_values_that_are_free_take_turns() -> None:
    rows = covering_rows([range(10), range(5)], strength=1, corners=[(9, 0)])
    assert Counter(shape for _, shape in rows) == dict.fromkeys(range(5), 2)


def test_same_rows_come_every_time() -> None:
    assert covering_rows(AXES) == covering_rows(AXES)
    assert covering_rows([["a", "b"], [0, 1]], strength=1) == [("a", 0), ("b", 1)]


def test_corner_outside_the_product_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\('fp9', .* is not a row of the product"):
        covering_rows(AXES, corners=[("fp9", (1, 64), "torch", None)])


def decorated() -> Any:
    axes: dict[str, Sequence[Any]] = {
        "kv_format": ["bf16", "int4"],
        "heads, head_size": [(1, 64), (2, 80), (4, 96)],
        "on_cpu": ["torch", "native"],
    }

    @matrix(axes, corners=[("int4", (2, 80), "native")])
    def test_nothing() -> None:
        """For its parameters alone."""

    return test_nothing


def test_matrix_runs_in_full_only_where_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "")
    reduced = decorated().pytestmark[0]
    monkeypatch.setenv(ENVIRONMENT, FULL)
    full = decorated().pytestmark[0]
    assert (len(reduced.args[1]), len(full.args[1])) == (6, 12)
    assert set(reduced.args[1]) < set(full.args[1])
    assert reduced.args[1][0] == ("int4", 2, 80, "native")


def test_matrix_names_rows_and_fills_fixtures() -> None:
    mark = decorated().pytestmark[0]
    assert mark.args[0] == ["kv_format", "heads", "head_size", "on_cpu"]
    assert mark.kwargs["ids"][0] == "int4-2-80-native"
    assert mark.kwargs["indirect"] == ["on_cpu"]


def test_matrix_knows_the_size_of_its_product() -> None:
    described = decorated().matrix
    assert described.full_size == 12
    assert len(described.reduced) == 6
