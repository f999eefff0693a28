"""Figures by hand."""

import math

import pytest
import torch

from engine_agent.tools.quality.metrics import Comparison, divergence, per_token, token_losses


def test_divergence_by_hand() -> None:
    reference = torch.tensor([[0.5, 0.5], [0.9, 0.1], [1.0, 1e-30]]).log()
    other = torch.tensor([[0.25, 0.75], [0.9, 0.1], [0.5, 0.5]]).log()
    by_hand = [0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75), 0.0, math.log(2)]
    assert divergence(reference, other).tolist() == pytest.approx(by_hand, abs=1e-6)


def test_divergence_is_of_the_reference() -> None:
    one, other = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.5, 0.5]]).log()
    assert divergence(one, other).item() == pytest.approx(0.9 * math.log(1.8) + 0.1 * math.log(0.2), abs=1e-6)


def test_losses_are_of_the_token_that_followed() -> None:
    log_probabilities = torch.tensor([[0.25, 0.75], [0.1, 0.9]]).log()
    found = token_losses(log_probabilities, torch.tensor([0, 1]))
    assert found.tolist() == pytest.approx([math.log(4), -math.log(0.9)], abs=1e-6)


def compared() -> Comparison:
    """Two documents; the reference gives each token 1/2, the other one 1/4 in the first and 1/2 in the second."""
    found = Comparison()
    half, quarter = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.25, 0.75]).log()
    found.add(0, half.repeat(4, 1), quarter.repeat(4, 1), torch.zeros(4, dtype=torch.int64), decoded=1)
    for _ in range(2):  # two windows of the second document
        found.add(1, half.repeat(6, 1), half.repeat(6, 1), torch.zeros(6, dtype=torch.int64), decoded=1)
    return found


def test_perplexity_counts_tokens_not_documents() -> None:
    found = compared()
    assert found.perplexity == pytest.approx(math.exp((4 * math.log(4) + 12 * math.log(2)) / 16))
    assert found.delta_percent().value == pytest.approx(100 * (2**0.25 - 1))


def test_the_interval_spans_what_documents_say() -> None:
    estimate = compared().delta_percent()
    assert estimate.low == pytest.approx(0)  # the second document drawn twice
    assert estimate.high == pytest.approx(100)  # the first one


def test_mean_and_tail_of_the_divergence() -> None:
    found, each = compared(), 0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75)
    assert found.mean_divergence().value == pytest.approx(each / 4, rel=1e-5)
    assert found.p99_divergence == pytest.approx(each, rel=1e-5)
    assert found.decoded_divergence == pytest.approx(each / 3, rel=1e-5)


def test_the_tail_is_the_99th_of_a_hundred() -> None:
    found = Comparison(divergences=[torch.arange(101).float()])
    assert found.p99_divergence == pytest.approx(99)


def test_agreement_is_of_the_likeliest_token() -> None:
    found = compared()  # at a half each the first token counts as the likeliest
    assert found.agreement == 12 / 16


def test_documents_that_agree_leave_no_doubt_and_those_that_do_not_leave_much() -> None:
    sure = per_token([2.0] * 20, [10] * 20)
    assert (sure.value, sure.low, sure.high) == pytest.approx((0.2, 0.2, 0.2))
    chance = torch.Generator().manual_seed(0)
    drawn = torch.randn(400, generator=chance).tolist()
    unsure = per_token(drawn, [1] * 400)
    assert unsure.low < 0.0 < unsure.high
    assert unsure.high - unsure.low == pytest.approx(2 * 1.96 / 20, rel=0.15)  # the normal one of 400 draws


def test_the_same_figures_give_the_same_interval() -> None:
    assert compared().delta_percent() == compared().delta_percent()
