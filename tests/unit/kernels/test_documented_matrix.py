"""The table in docs/testing.md lists the matrices that there are."""

from tests.kernels.table import PAGE, matrices, table


def test_documented_matrices_are_those_of_the_tests() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), "run: python -m tests.kernels.table"


def test_reduced_matrices_are_smaller_than_their_products() -> None:
    sizes = {name: (len(matrix.reduced), matrix.full_size) for _, name, matrix in matrices()}
    assert sizes
    assert [name for name, (reduced, full) in sizes.items() if not 0 < reduced < full] == []
