"""Every row that docs/performance.md lists is measured. Importing all rows brings torch and transformers along."""

from tests.bench.__main__ import ROWS
from tests.bench.registry import REGISTRY, discover
from tests.bench.report.numbers import BY_KEY

ON_A_GPU = {"H1", "H2"}


def test_every_listed_row_is_registered() -> None:
    assert discover(ROWS) == []
    assert {row.key for row in REGISTRY.rows()} == set(BY_KEY) - ON_A_GPU
