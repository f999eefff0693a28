"""What a row module needs: `from tests.bench import Bench, Target, row, timed`."""

from tests.bench.figures import Target
from tests.bench.measuring import Bench, timed
from tests.bench.registry import row

__all__ = ["Bench", "Target", "row", "timed"]
