"""Prompts of known length that share what they should, and nothing else."""

from array import array
from itertools import pairwise
from statistics import mean, pstdev

import pytest

from engine_agent.tools.loadgen.arrivals import arrival_seconds
from engine_agent.tools.loadgen.workloads import (
    Vocabulary,
    as_text,
    random_prompts,
    shared_prefix_prompts,
    trace_prompts,
    word,
)
from engine_agent.tools.replay.trace import Request

WORDS = Vocabulary()


def common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_random_prompts_have_their_length_and_share_nothing_to_speak_of() -> None:
    asked = random_prompts(20, input_tokens=100, output_tokens=7, vocabulary=WORDS)
    assert {len(one.tokens) for one in asked} == {100}
    assert {one.output_tokens for one in asked} == {7}
    assert max(common(a.tokens, b.tokens) for a in asked for b in asked if a is not b) < 4


def test_equal_seeds_make_equal_prompts_and_other_seeds_others() -> None:
    first, again, other = (
        random_prompts(3, input_tokens=50, output_tokens=1, vocabulary=WORDS, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert common(first[0].tokens, other[0].tokens) < 4


def test_shared_prefix_prompts_share_a_prefix_and_only_that() -> None:
    asked = shared_prefix_prompts(30, prefix_tokens=200, prefixes=3, input_tokens=40, output_tokens=1, vocabulary=WORDS)
    heads = {one.tokens[:200] for one in asked}
    assert len(heads) == 3
    assert [sum(one.tokens[:200] == head for one in asked) for head in heads] == [10, 10, 10]
    assert len({one.tokens[200:] for one in asked}) == 30
    assert {len(one.tokens) for one in asked} == {240}


@pytest.mark.parametrize(("scale", "block"), [(1.0, 512), (0.05, 26)])
def test_requests_of_a_trace_share_what_their_ids_share(scale: float, block: int) -> None:
    requests = [
        Request(10.0, 1100, 20, array("Q", [1, 2, 3])),
        Request(12.5, 1536, 40, array("Q", [1, 2, 4])),
        Request(13.0, 1100, 1, array("Q", [5, 2, 3])),
    ]
    asked = trace_prompts(requests, block_tokens=512, scale=scale, vocabulary=WORDS)
    assert common(asked[0].tokens, asked[1].tokens) in range(2 * block, 2 * block + 4)
    assert common(asked[0].tokens, asked[2].tokens) < 4
    assert [len(one.tokens) for one in asked] == [round(one.input_tokens * scale) for one in requests]
    assert [one.output_tokens for one in asked] == [max(1, round(one.output_tokens * scale)) for one in requests]
    assert [one.at_seconds for one in asked] == [0.0, 2.5, 3.0]


def test_a_rest_without_an_id_is_nobody_elses() -> None:
    twins = [Request(0.0, 600, 1, array("Q", [1])), Request(0.0, 600, 1, array("Q", [1]))]
    first, second = trace_prompts(twins, block_tokens=512, vocabulary=WORDS)
    assert len(first.tokens) == len(second.tokens) == 600
    assert 512 <= common(first.tokens, second.tokens) < 516


@pytest.mark.parametrize("tokens_per_word", [1.0, 1.7, 3.25])
def test_text_has_about_as_many_tokens_and_keeps_common_beginnings(tokens_per_word: float) -> None:
    head = WORDS.draw(400, "head")
    one, other = (as_text(head + WORDS.draw(100, tail), tokens_per_word).split() for tail in "ab")
    assert len(one) == len(other) == round(500 / tokens_per_word)
    assert one[: int(400 / tokens_per_word)] == other[: int(400 / tokens_per_word)]
    assert one != other


def test_different_tokens_are_different_words() -> None:
    assert len({word(token) for token in range(20_000)}) == 20_000


def test_requests_arrive_at_the_rate_asked_for() -> None:
    moments = arrival_seconds(20_000, rate=50.0, seed=3)
    assert moments[0] == 0.0
    assert moments == sorted(moments)
    assert moments[-1] == pytest.approx(20_000 / 50, rel=0.03)
    assert arrival_seconds(20_000, rate=50.0, seed=3) == moments


@pytest.mark.parametrize(("burstiness", "variation"), [(0.25, 2.0), (1.0, 1.0), (100.0, 0.1)])
def test_burstiness_says_how_unevenly_they_come(burstiness: float, variation: float) -> None:
    moments = arrival_seconds(20_000, rate=10.0, burstiness=burstiness)
    gaps = [after - before for before, after in pairwise(moments)]
    assert pstdev(gaps) / mean(gaps) == pytest.approx(variation, rel=0.1)


def test_an_infinite_rate_sends_all_at_once() -> None:
    assert arrival_seconds(3, rate=float("inf")) == [0.0, 0.0, 0.0]
