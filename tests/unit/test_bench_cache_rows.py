"""C1 and C2: what is repeated and counted, and what a row keeps when there is no vLLM to compare with."""

import sys
from pathlib import Path
from statistics import median

import pytest

from controlplane.stack.environments import Unavailable
from tests.bench import cache_rounds
from tests.bench.cache_rounds import (
    FULL_HIT,
    NEW_PROMPT,
    PROMPT_TOKENS,
    PROMPTS_IN_POOL,
    TENANTS,
    Round,
    Rounds,
    Stopwatch,
)
from tests.bench.cache_worker import OurBookkeeping
from tests.bench.registry import REGISTRY
from tests.bench.results import RowResult
from tests.bench.rows import cache
from tests.bench.running import run_row

BLOCKS = PROMPT_TOKENS // cache_rounds.BLOCK_TOKENS


class Recorder:
    """Keeps what it was asked to; each round takes a second longer than the one before."""

    def __init__(self) -> None:
        self.new: list[tuple[int, tuple[int, ...]]] = []
        self.hit: list[tuple[int, tuple[int, ...]]] = []

    def new_prompt(self, tokens: list[int], tenant: int) -> Round:
        self.new.append((tenant, tuple(tokens)))
        return self._round()

    def full_hit(self, tokens: list[int], tenant: int) -> Round:
        self.hit.append((tenant, tuple(tokens)))
        return self._round()

    def _round(self) -> Round:
        count = len(self.new) + len(self.hit)
        return Round(float(count), {"hash": count / 4, "free": count / 2}, count, 7)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def rounds(recorder: Recorder) -> Rounds:
    return Rounds(recorder)


def test_the_pool_is_full_before_anything_is_measured(rounds: Rounds, recorder: Recorder) -> None:
    assert len(recorder.new) >= 2 * PROMPTS_IN_POOL


def test_new_prompts_are_new_from_their_first_token_on_and_of_every_tenant(rounds: Rounds, recorder: Recorder) -> None:
    rounds.answer({"measure": NEW_PROMPT, "rounds": 20})
    assert len({tokens[:16] for _, tokens in recorder.new}) == len(recorder.new)
    assert {len(tokens) for _, tokens in recorder.new} == {PROMPT_TOKENS}
    assert {tenant for tenant, _ in recorder.new[-20:]} == set(range(TENANTS))


def test_full_hits_are_of_prompts_their_tenant_brought_in_just_before(rounds: Rounds, recorder: Recorder) -> None:
    recorder.hit.clear()
    rounds.answer({"measure": FULL_HIT, "rounds": 20})
    assert len(recorder.hit) == 20
    assert set(recorder.hit) == set(recorder.new[-TENANTS:])


def test_an_answer_has_the_median_of_the_whole_and_of_each_part(rounds: Rounds, recorder: Recorder) -> None:
    before = len(recorder.new) + len(recorder.hit)
    answer = rounds.answer({"measure": NEW_PROMPT, "rounds": 5})
    middle = median(range(before + 1, before + 6)) * 1e6
    assert answer["µs"] == {"whole": middle, "hash": middle / 4, "free": middle / 2}
    assert answer["evicted_blocks"] == list(range(before + 1, before + 6))
    assert answer["hit_tokens"] == [7] * 5


def test_both_sides_are_given_the_same_prompts() -> None:
    one, other = Recorder(), Recorder()
    Rounds(one), Rounds(other)
    assert one.new == other.new


def test_parts_follow_each_other_and_make_up_the_whole() -> None:
    watch = Stopwatch()
    watch.lap("first")
    watch.lap("second")
    assert list(watch.parts) == ["first", "second"]
    assert watch.seconds == pytest.approx(sum(watch.parts.values()))


# --- our side, for real -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ours() -> Rounds:
    return Rounds(OurBookkeeping())


def test_every_new_prompt_of_ours_evicts_as_many_blocks_as_it_needs(ours: Rounds) -> None:
    ours.answer({"measure": NEW_PROMPT, "rounds": 1})  # after a hit a page is free: its last block was never filled
    answer = ours.answer({"measure": NEW_PROMPT, "rounds": 8})
    assert answer["evicted_blocks"] == [BLOCKS] * 8
    assert answer["hit_tokens"] == [0] * 8


def test_every_full_hit_of_ours_has_all_but_the_last_block(ours: Rounds) -> None:
    answer = ours.answer({"measure": FULL_HIT, "rounds": 8})
    assert answer["hit_tokens"] == [4080] * 8
    assert max(answer["evicted_blocks"]) <= 1


# --- the rows ---------------------------------------------------------------------------------------------------------

ROW = {row.key: row for row in REGISTRY.rows()}


@pytest.fixture
def without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(_: object) -> Path:
        raise Unavailable("no wheels for this machine")

    monkeypatch.setattr("controlplane.stack.vllm_env.VllmEnvironment.ready_python", unavailable)


def figures(result: RowResult) -> dict[str, str]:
    return {figure.name: figure.kind for figure in result.figures}


@pytest.mark.usefixtures("without_vllm")
@pytest.mark.parametrize("key", ["C1", "C2"])
def test_without_vllm_our_side_is_measured_and_the_row_says_what_is_missing(key: str) -> None:
    result = run_row(ROW[key], repetitions=2)
    measure = {"C1": NEW_PROMPT, "C2": FULL_HIT}[key]
    assert result.error is None
    assert result.skipped is not None
    assert "no wheels for this machine" in result.skipped
    assert figures(result)[measure] == "measure"
    assert f"{measure}, ours: look up, allocate" in figures(result)


def test_beside_vllm_the_target_judges_the_ratio_and_the_evidence_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With our own worker in the place of vLLM's, which `make test` must not need."""
    monkeypatch.setattr(cache, "THEIR_WORKER", cache.OUR_WORKER)
    monkeypatch.setattr("controlplane.stack.vllm_env.VllmEnvironment.ready_python", lambda _: Path(sys.executable))
    result = run_row(ROW["C1"], repetitions=2)
    assert (result.error, result.skipped) == (None, None)
    (compared,) = [figure for figure in result.figures if figure.kind == "compare"]
    assert compared.target == cache.HALF
    assert compared.judged is compared.ratio
    done, how = (
        "each of 40 repetitions evicted 256 of 2,048 blocks and had 0 hit tokens of 4,096",
        "garbage collector on",
    )
    assert [done in note for note in result.notes] == [True, False, True, False]
    assert [how in note for note in result.notes] == [False, True, False, True]
