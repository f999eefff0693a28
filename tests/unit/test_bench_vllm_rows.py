"""V1 and V2: what a row keeps of two workers' answers, and what it says where there is no vLLM."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.stack.environments import Unavailable
from tests.bench.registry import REGISTRY
from tests.bench.rows import vllm
from tests.bench.running import run_row
from tests.bench.vllm_asked import OURS
from tests.unit.replay.examples import PUBLIC_TRACE

ROW = {row.key: row for row in REGISTRY.rows()}


class StandIn:
    """Answers as a worker does. Ours takes twice as long."""

    def __init__(self, side: str) -> None:
        self._times = 2.0 if side == OURS else 1.0
        self.asked: list[Mapping[str, Any]] = []

    def ask(self, **question: Any) -> dict[str, Any]:
        self.asked.append(question)
        if "trace" in question:
            return {"seconds": self._times, "requests": 32, "tokens": 640, "hit_tokens": 320, "steps": 9}
        parts = {"making µs": self._times, "scheduling µs": 2 * self._times, "hit_tokens": [4080]}
        return {"µs": 3 * self._times, **parts}


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> dict[str, StandIn]:
    running: dict[str, StandIn] = {}

    @contextmanager
    def started(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[StandIn]:
        running[command[-1]] = StandIn(command[-1])
        yield running[command[-1]]

    monkeypatch.setattr(vllm, "worker_running", started)
    monkeypatch.setattr("controlplane.stack.vllm_env.VllmEnvironment.ready_python", lambda _: Path(sys.executable))
    return running


@pytest.mark.parametrize("key", ["V1", "V2"])
def test_without_vllm_a_row_says_what_is_missing(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(_: object) -> Path:
        raise Unavailable("no wheels for this machine")

    monkeypatch.setattr("controlplane.stack.vllm_env.VllmEnvironment.ready_python", unavailable)
    if key == "V2" and not PUBLIC_TRACE.exists():
        pytest.skip("the public trace is not in ../shared/traces")
    result = run_row(ROW[key], repetitions=2)
    assert result.error is None
    assert result.skipped is not None
    assert "no wheels for this machine" in result.skipped


@pytest.mark.usefixtures("workers")
def test_a_request_and_a_step_are_judged_by_their_ratio_and_their_parts_are_kept() -> None:
    result = run_row(ROW["V1"], repetitions=2)
    assert (result.error, result.skipped) == (None, None)
    judged = [figure for figure in result.figures if figure.target]
    assert len(judged) == 3
    assert all(figure.judged is figure.ratio and set(figure.ratio.samples) == {2} for figure in judged if figure.ratio)
    assert {
        one for figure in result.figures if figure.name.endswith("ours: making") for one in figure.ours.samples
    } == {2}
    assert sum("hit 4,080 tokens each time" in note for note in result.notes) == 4


@pytest.mark.skipif(not PUBLIC_TRACE.exists(), reason="the public trace is not in ../shared/traces")
def test_both_sides_serve_the_same_prompts_new_ones_in_each_sample(workers: dict[str, StandIn]) -> None:
    result = run_row(ROW["V2"], repetitions=2)
    assert (result.error, result.skipped) == (None, None)
    ours, stock = (one.asked for one in workers.values())
    assert ours == stock
    assert len({question["seed"] for question in ours}) == len(ours)
    assert [set(figure.ratio.samples) for figure in result.figures if figure.ratio] == [{0.5}]
