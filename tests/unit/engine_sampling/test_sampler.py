"""One choice's tokens: its own logits, settings, seed and past, and nothing else."""

import random
from typing import Any

import pytest
import torch

from engine_agent.engine.errors import BadRequest
from engine_agent.engine.sampler import NOT_FINITE, Chance, Sampled, sample_batch
from tests.unit.engine_sampling.making import EOS, VOCAB, make_logits, make_sampler, token_of, tokens_of

GREEDY: dict[str, Any] = {"temperature": 0.0}
KINDS: list[dict[str, Any]] = [
    GREEDY,
    {"seed": 1},
    {"seed": 2, "temperature": 0.5, "top_k": 5},
    {"seed": 3, "top_p": 0.7, "logprobs": 2},
    {"seed": 4, "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
    GREEDY | {"logprobs": 3},
    GREEDY | {"repetition_penalty": 1.5},
    GREEDY | {"logit_bias": {7: 5.0}, "min_tokens": 3},
]


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_a_choice_gets_the_same_tokens_whatever_else_is_in_the_batch(settings: dict[str, Any]) -> None:
    logits = make_logits(rows=30)
    alone = tokens_of(make_sampler(**settings), logits)
    chance = random.Random(5)
    sampler, crowded = make_sampler(**settings), []
    for step, row in enumerate(logits):
        others = [make_sampler(**chance.choice(KINDS)) for _ in range(chance.randrange(6))]
        place = chance.randint(0, len(others))
        beside = make_logits(rows=len(others), seed=step + 100)
        batch = torch.cat((beside[:place], row[None], beside[place:]))
        crowded.append(token_of(sample_batch([*others[:place], sampler, *others[place:]], batch)[place]))
    assert crowded == alone
    assert len(set(alone)) > 3


def test_greedy_is_the_likeliest_and_of_equals_the_lower() -> None:
    logits = make_logits(rows=20)
    logits[:, [9, 30]] = 100.0
    logits[3, 40] = 101.0
    assert tokens_of(make_sampler(**GREEDY), logits) == [9, 9, 9, 40] + [9] * 16
    assert tokens_of(make_sampler(temperature=1, top_k=1), logits) == [9, 9, 9, 40] + [9] * 16
    assert tokens_of(make_sampler(logprobs=0, **GREEDY), logits) == [9, 9, 9, 40] + [9] * 16


def test_a_seed_decides_and_each_choice_of_a_request_has_its_own_chance() -> None:
    logits = make_logits(rows=40, spread=0.5)
    first = tokens_of(make_sampler(seed=11), logits)
    assert tokens_of(make_sampler(seed=11), logits) == first
    assert tokens_of(make_sampler(seed=12), logits) != first
    assert tokens_of(make_sampler(seed=11, index=1), logits) != first
    assert tokens_of(make_sampler(seed=-11), logits) != first


def test_without_a_seed_no_two_requests_are_alike() -> None:
    logits = make_logits(rows=40, spread=0.5)
    assert tokens_of(make_sampler(), logits) != tokens_of(make_sampler(), logits)


@pytest.mark.parametrize("seed", [0, -(2**63), 2**63 - 1])
def test_chance_is_spread_evenly_for_any_seed(seed: int) -> None:
    chance = Chance(seed, 0)
    numbers = [chance.number(draw) for draw in range(2000)]
    assert 0 <= min(numbers) < 0.01
    assert 0.99 < max(numbers) < 1
    assert sum(numbers) / 2000 == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_a_copy_goes_on_as_the_original_would(settings: dict[str, Any]) -> None:
    logits = make_logits(rows=30, spread=1)
    sampler = make_sampler(**settings)
    tokens_of(sampler, logits[:10])
    twin = sampler.copy()
    expected = tokens_of(twin.copy(), logits[10:])
    assert tokens_of(sampler, logits[10:]) == expected
    assert tokens_of(twin, logits[10:]) == expected


def test_a_token_that_was_accepted_counts_like_one_that_was_drawn() -> None:
    logits = make_logits(rows=10, spread=1)
    settings: dict[str, Any] = {"seed": 3, "frequency_penalty": 2.0, "repetition_penalty": 1.5, "min_tokens": 4}
    drawing, told = make_sampler(**settings), make_sampler(**settings)
    for token in tokens_of(drawing, logits[:5]):
        told.accept(token)
    assert told.generated_tokens == drawing.generated_tokens == 5
    assert tokens_of(told, logits[5:]) == tokens_of(drawing, logits[5:])


def test_a_penalty_drives_out_what_was_said_and_the_prompt_only_under_repetition() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [5, 6]] = torch.tensor([1.0, 0.9])
    again = logits.expand(2, -1)
    assert tokens_of(make_sampler(prompt=[5], **GREEDY), again) == [5, 5]
    assert tokens_of(make_sampler(prompt=[5], presence_penalty=0.5, **GREEDY), again) == [5, 6]
    assert tokens_of(make_sampler(prompt=[5], frequency_penalty=0.5, **GREEDY), again) == [5, 6]
    assert tokens_of(make_sampler(prompt=[5], repetition_penalty=1.5, **GREEDY), again) == [6, 5]


def test_frequency_grows_with_every_use_of_many_tokens() -> None:
    """Longer than the room a past is first given, so that it grows on the way."""
    row = torch.linspace(1, 0, VOCAB)[None].expand(3 * VOCAB, -1)
    tokens = tokens_of(make_sampler(frequency_penalty=2.0, **GREEDY), row)
    assert tokens == list(range(VOCAB)) * 3


def test_a_bias_adds_to_the_logit() -> None:
    logits = torch.zeros(1, VOCAB)
    assert tokens_of(make_sampler(logit_bias={8: 1.0, 9: 2.0}, **GREEDY), logits) == [9]
    assert tokens_of(make_sampler(logit_bias={0: -100.0, 1: -100}, **GREEDY), logits) == [2]


def test_no_token_that_ends_it_comes_before_min_tokens() -> None:
    logits = torch.zeros(4, VOCAB)
    logits[:, EOS], logits[:, 7], logits[:, 9] = 100.0, 90.0, 80.0
    assert tokens_of(make_sampler(min_tokens=2, **GREEDY), logits) == [7, 7, EOS, EOS]
    assert tokens_of(make_sampler(min_tokens=2, stop_token_ids=(7,), **GREEDY), logits) == [9, 9, EOS, EOS]
    assert tokens_of(make_sampler(min_tokens=2, ignore_eos=True, **GREEDY), logits) == [EOS] * 4
    assert make_sampler(stop_token_ids=(7,)).end_tokens == {EOS, 7}
    assert make_sampler(stop_token_ids=(7,), ignore_eos=True).end_tokens == {7}


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_a_row_that_is_not_finite_fails_alone(settings: dict[str, Any], broken: float) -> None:
    logits = make_logits(rows=3)
    logits[1, 5] = broken
    samplers = [make_sampler(**settings) for _ in range(3)]
    first, second, third = sample_batch(samplers, logits)
    assert second is NOT_FINITE
    assert isinstance(first, Sampled)
    assert isinstance(third, Sampled)
    assert [sampler.generated_tokens for sampler in samplers] == [1, 0, 1]


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_a_row_that_forbids_everything_names_nothing(settings: dict[str, Any]) -> None:
    assert make_sampler(**settings).sample(torch.full((VOCAB,), -torch.inf)) is NOT_FINITE


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_what_the_model_forbids_is_not_drawn(settings: dict[str, Any]) -> None:
    logits = torch.full((20, VOCAB), -torch.inf)
    logits[:, 33] = -1e38
    assert set(tokens_of(make_sampler(**settings), logits)) == {33}


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_sampling_leaves_the_logits_as_they_were(settings: dict[str, Any]) -> None:
    logits = make_logits(rows=2)
    before = logits.clone()
    sample_batch([make_sampler(**settings), make_sampler(**settings)], logits)
    assert torch.equal(logits, before)


def test_logprobs_are_of_the_logits_before_any_setting() -> None:
    logits = make_logits()
    settings: dict[str, Any] = {"seed": 1, "temperature": 2.0, "top_k": 3, "logit_bias": {4: 50.0}}
    told = make_sampler(logprobs=5, **settings).sample(logits[0])
    assert isinstance(told, Sampled)
    assert told.logprobs is not None
    expected = logits.double().log_softmax(-1)[0]
    assert told.token == told.logprobs.chosen.token
    assert told.logprobs.chosen.logprob == pytest.approx(expected[told.token].item(), abs=1e-5)
    assert [top.token for top in told.logprobs.top] == expected.topk(5).indices.tolist()
    assert token_of(make_sampler(**settings).sample(logits[0])) == told.token


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("logit_bias", {"logit_bias": {VOCAB: 1.0}}),
        ("logit_bias", {"logit_bias": {-1: 1.0}}),
        ("stop_token_ids", {"stop_token_ids": (VOCAB,)}),
        ("stop_token_ids", {"stop_token_ids": (True,)}),
    ],
)
def test_a_token_the_model_does_not_have_is_refused_by_name(field: str, settings: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=f"{field}: .* is no token of this model: they are 0 to 49") as refused:
        make_sampler(**settings)
    assert refused.value.field == field


def test_a_token_of_thousands_of_digits_is_named_in_few_of_them() -> None:
    with pytest.raises(BadRequest) as refused:
        make_sampler(stop_token_ids=(10**4_000,))
    assert len(str(refused.value)) < 200


def test_an_end_token_beyond_the_vocabulary_harms_nobody() -> None:
    """Some checkpoints name one."""
    logits = make_logits(vocab=10, rows=3)
    assert len(tokens_of(make_sampler(vocab=10, min_tokens=3, **GREEDY), logits)) == 3
