"""What a row module needs: `from tests.bench import Bench, Target, row, timed`."""

from tests.bench.harness import Bench, Target, row, timed

__all__ = ["Bench", "Target", "row", "timed"]
