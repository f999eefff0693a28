"""What may be drawn, held against Hugging Face's own processors and against sorting everything."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engine_agent.engine.logits import (
    LEAST_LOGPROB,
    Row,
    candidates,
    drawn,
    largest,
    nucleus,
    penalised,
    token_logprobs,
)
from tests.unit.engine_sampling.making import make_logits

PATIENT = settings(deadline=None)
numbers = st.floats(-50, 50, width=32)
rows = arrays(np.float32, st.integers(1, 40), elements=numbers)
chances = st.floats(0, 1, exclude_max=True)


def row_of(*numbers: float) -> Row:
    return np.array(numbers, dtype=np.float32)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [(1, 0, 1, 0), (0.3, 0, 1, 0), (1, 7, 1, 0), (1, 0, 0.8, 0), (1, 0, 1, 0.1), (1.7, 30, 0.7, 0.02)],
)
def test_the_same_tokens_may_be_drawn_as_with_hugging_face(
    temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = make_logits(seed=seed, vocab=500)
    unseen: Any = torch.empty(0, dtype=torch.long)
    scores: Any = TemperatureLogitsWarper(float(temperature))(unseen, logits)
    if top_k:
        scores = TopKLogitsWarper(top_k)(unseen, scores)
    scores = TopPLogitsWarper(float(top_p))(unseen, scores)
    scores = MinPLogitsWarper(float(min_p))(unseen, scores)
    weights = candidates(logits[0].numpy(), temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    assert torch.allclose(torch.from_numpy(weights / weights.sum()), scores[0].softmax(-1), rtol=1e-5, atol=1e-8)


@PATIENT
@given(row=rows, count=st.integers(1, 40))
def test_the_largest_are_those_a_stable_sort_puts_first(row: Row, count: int) -> None:
    wanted = np.sort(np.argsort(-row, kind="stable")[:count])
    assert np.flatnonzero(largest(row, count)).tolist() == wanted.tolist()


def test_of_equal_numbers_the_lower_token_is_larger() -> None:
    assert np.flatnonzero(largest(row_of(1, 2, 2, -0.0, 0.0, 2), 2)).tolist() == [1, 2]
    assert np.flatnonzero(largest(row_of(-0.0, 0.0), 1)).tolist() == [0]
    assert np.flatnonzero(nucleus(row_of(0.5, 1, 1, 1), 0.5)).tolist() == [1, 2]


@PATIENT
@given(weights=arrays(np.float32, st.integers(1, 40), elements=st.integers(0, 100)), share=st.floats(0.001, 1))
def test_a_nucleus_reaches_its_share_and_would_not_without_its_least(weights: Row, share: float) -> None:
    weights[0] += 1
    kept = weights[nucleus(weights, share)]
    wanted = share * float(weights.sum())
    assert kept.sum() >= wanted * (1 - 1e-12)
    assert kept.sum() - kept.min() < wanted
    assert kept.min() >= weights[~nucleus(weights, share)].max(initial=0)


@PATIENT
@given(weights=arrays(np.float32, st.integers(1, 2000), elements=st.sampled_from([0, 0.5, 1, 3])), chance=chances)
def test_a_draw_falls_where_the_chance_points(weights: Row, chance: float) -> None:
    weights[-1] = 1
    place = drawn(weights, chance)
    before, upto = weights[:place].sum(dtype=np.float64), weights[: place + 1].sum(dtype=np.float64)
    assert before <= chance * weights.sum(dtype=np.float64) < upto


def test_what_weighs_nothing_is_never_drawn() -> None:
    weights = row_of(0, 1e-30, 0, 1, 0)
    drawn_at = {drawn(weights, chance) for chance in (0.0, 1e-31, 1e-29, 0.5, np.nextafter(1, 0))}
    assert drawn_at == {1, 3}


@pytest.mark.parametrize("vocab", [513, 5000])
def test_draws_come_as_often_as_their_weights_say(vocab: int) -> None:
    weights = np.exp(make_logits(vocab=vocab)[0].numpy())
    chances = (np.arange(20_000) + 0.5) / 20_000
    counts = np.bincount([drawn(weights, chance) for chance in chances], minlength=vocab)
    assert np.abs(counts / 20_000 - weights / weights.sum()).max() < 1e-4


def test_repetition_penalty_is_hugging_faces() -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    logits = make_logits()
    seen = np.array([3, 4, 5, 6, 9])
    expected = RepetitionPenaltyLogitsProcessor(1.3)(torch.from_numpy(seen)[None], logits.clone())
    row = logits[0].numpy()
    before = row.copy()
    none = np.empty(0, np.intp)
    changed = penalised(row, seen=seen, repetition=1.3, used=none, counts=row_of(), frequency=0, presence=0)
    assert torch.equal(torch.from_numpy(changed), expected[0])
    assert (row == before).all()


def test_frequency_counts_each_use_and_presence_only_the_first() -> None:
    row = row_of(1, 1, 1, 1)
    seen, used = np.array([0, 1, 2]), np.array([1, 2])
    changed = penalised(row, seen=seen, repetition=1, used=used, counts=row_of(1, 3), frequency=0.5, presence=0.25)
    assert changed.tolist() == [1, 0.25, -0.75, 1]


@pytest.mark.parametrize("repetition", [1e-300, 1e-30, 2])
def test_an_absurd_penalty_of_huge_logits_stays_finite_at_its_peak(repetition: float) -> None:
    seen = np.arange(3)
    none = np.empty(0, np.intp)
    row = row_of(3e38, -3e38, 0)
    changed = penalised(row, seen=seen, repetition=repetition, used=none, counts=row_of(), frequency=2, presence=2)
    assert np.isfinite(changed.max())


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 1e-5])
def test_a_temperature_near_nought_leaves_the_likeliest(temperature: float) -> None:
    weights = candidates(row_of(-3e38, 1, 2, 3e38), temperature=temperature, top_k=0, top_p=1, min_p=0)
    assert weights.tolist() == [0, 0, 0, 1]


@PATIENT
@given(row=rows)
def test_logprobs_are_of_the_model_itself_and_in_order(row: Row) -> None:
    told = token_logprobs(row, 0, 5)
    expected = torch.log_softmax(torch.from_numpy(row).double(), dim=-1)
    assert told.chosen.logprob == pytest.approx(expected[0].item(), abs=1e-5)
    assert [top.token for top in told.top] == np.argsort(-row, kind="stable")[:5].tolist()
    assert [top.logprob for top in told.top] == pytest.approx(expected[[t.token for t in told.top]].tolist(), abs=1e-5)


def test_a_logprob_is_a_number_that_json_knows() -> None:
    told = token_logprobs(row_of(0, -np.inf, -3e38), 0, 3)
    assert [top.logprob for top in told.top] == [0, LEAST_LOGPROB, LEAST_LOGPROB]
    assert [top.token for top in told.top] == [0, 2, 1]
    assert token_logprobs(row_of(0, 1), 1, 0).top == ()
