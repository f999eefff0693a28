"""Q2: which tokens count as equal, and that every configuration there is gets compared."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.bench.equality_worker import _equal
from tests.bench.registry import REGISTRY
from tests.bench.rows import equality
from tests.bench.running import run_row
from tests.engines.families import CONFIGURATIONS


def test_tokens_count_up_to_the_first_that_differs() -> None:
    assert _equal([4, 5, 6], [4, 5, 6]) == 3
    assert _equal([4, 5, 6], [4, 9, 6]) == 1
    assert _equal([4, 5, 6], [9, 5, 6]) == 0


def test_every_configuration_is_compared() -> None:
    assert set(equality.CONFIGURATIONS) == set(CONFIGURATIONS)


def test_a_prompt_that_differs_falls_short_by_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def worker(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[SimpleNamespace]:
        assert command == (sys.executable, "-m", equality.WORKER)
        yield SimpleNamespace(ask=lambda **asked: {"equal": [64, 64, 16]}, facts={"transformers": "5"})

    monkeypatch.setattr(equality, "worker_running", worker)
    (row,) = REGISTRY.select(["Q2"])
    result = run_row(row)
    first, *_, prompts = result.figures
    assert (first.is_met, first.judged_value) == (False, 25.0)
    assert (prompts.ours.samples, prompts.is_met) == ((30.0,), False)
