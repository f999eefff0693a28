"""Beam search, held against Hugging Face's own on small models whose every logit is known."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_agent.engine.beams import BeamSearch, Hypothesis
from engine_agent.engine.errors import BadRequest, EngineFailed
from engine_agent.engine.params import BeamParams, SamplingParams

VOCAB = 24
PAD = VOCAB - 1
Network = Callable[[Tensor], Tensor]  # tokens [rows, length] -> logits of what follows, [rows, vocabulary]


@pytest.fixture(scope="module")
def model() -> Any:
    """Sharp enough that beams differ, and end now and then."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "initializer_range": 0.3,
        "pad_token_id": PAD,
    }
    made: Any = LlamaForCausalLM
    return made(LlamaConfig(vocab_size=VOCAB, **sizes)).eval()


@pytest.fixture(scope="module")
def network(model: Any) -> Network:
    @torch.no_grad()
    def following(tokens: Tensor) -> Tensor:
        logits: Tensor = model(tokens).logits[:, -1]
        return logits.float()

    return following


def make_search(
    beams: int, *, eos_ids: frozenset[int] = frozenset({0}), max_tokens: int = 12, **settings: Any
) -> BeamSearch:
    rules = {name: settings.pop(name) for name in ("length_penalty", "early_stopping") if name in settings}
    params = SamplingParams(n=beams, beam=BeamParams(**rules), **settings)
    return BeamSearch(params, vocab_size=VOCAB, eos_ids=eos_ids, max_tokens=max_tokens)


def searched(network: Network, search: BeamSearch, prompt: list[int]) -> list[Hypothesis]:
    """As the engine does: a sequence for each live beam, forked from its parent."""
    live = [prompt]
    while not search.is_done:
        assert search.live_beams == len(live)
        live = [[*live[step.parent], step.token] for step in search.advance(network(torch.tensor(live)))]
    return search.best()


@torch.no_grad()
def generated(model: Any, beams: int, prompt: list[int], eos: list[int], **settings: Any) -> Any:
    return model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        num_beams=beams,
        num_return_sequences=beams,
        do_sample=False,
        eos_token_id=eos or None,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )


def padded(tokens: Sequence[int], length: int) -> list[int]:
    """As `generate` fills up what ended early."""
    return [*tokens, *[PAD] * (length - len(tokens))]


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.0, -1.0])
@pytest.mark.parametrize("beams", [2, 5])
def test_the_best_answers_are_hugging_faces(
    model: Any, network: Network, beams: int, length_penalty: float, early_stopping: bool
) -> None:
    rules: dict[str, Any] = {"length_penalty": length_penalty, "early_stopping": early_stopping}
    finishes = set()
    for number in range(4):
        prompt = [1 + number, 5, 9 + number]
        (likeliest,) = generated(model, 1, prompt, [], max_new_tokens=12).sequences.tolist()
        eos = sorted({likeliest[7], likeliest[11], likeliest[13]})[: 1 + number % 3]
        expected = generated(model, beams, prompt, eos, max_new_tokens=12, **rules)
        best = searched(network, make_search(beams, eos_ids=frozenset(eos), **rules), prompt)
        told = expected.sequences[:, len(prompt) :].tolist()
        assert [padded(hypothesis.tokens, len(told[0])) for hypothesis in best] == told
        assert [hypothesis.score for hypothesis in best] == pytest.approx(expected.sequences_scores.tolist(), abs=1e-4)
        for hypothesis in best:
            assert (hypothesis.tokens[-1] in eos) == (hypothesis.finish == "stop")
            finishes.add(hypothesis.finish)
    assert "stop" in finishes


def test_min_tokens_keeps_answers_from_ending_as_hugging_face_does(model: Any, network: Network) -> None:
    for number in range(6):
        prompt = [1 + number, 5]
        expected = generated(model, 3, prompt, [0, 4], max_new_tokens=10, min_new_tokens=6)
        best = searched(network, make_search(3, eos_ids=frozenset({0, 4}), min_tokens=6, max_tokens=10), prompt)
        assert [h.score for h in best] == pytest.approx(expected.sequences_scores.tolist(), abs=1e-4)
        assert min(len(hypothesis.tokens) for hypothesis in best) >= 6


def test_a_single_beam_is_greedy_search(network: Network) -> None:
    (best,) = searched(network, make_search(1), [1, 5, 9])
    tokens = [1, 5, 9]
    while tokens[-1] != 0 and len(tokens) < 15:
        tokens.append(int(network(torch.tensor([tokens])).argmax()))
    assert list(best.tokens) == tokens[3:]


def test_a_stop_token_ends_a_beam_and_ignored_eos_does_not() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 0], logits[0, 7] = 9.0, 8.0
    search = make_search(2, ignore_eos=True, stop_token_ids=(7,))
    assert search.advance(logits)[0].token == 0
    assert [hypothesis.tokens for hypothesis in search.best() if hypothesis.finish == "stop"] == [(7,)]


def test_beams_that_are_cut_off_tell_what_they_have(network: Network) -> None:
    search = make_search(3, eos_ids=frozenset())
    assert search.best() == []
    steps = search.advance(network(torch.tensor([[1, 5]])))
    assert [hypothesis.tokens for hypothesis in search.best()] == [(step.token,) for step in steps]
    assert {hypothesis.finish for hypothesis in search.best()} == {"length"}


def test_each_token_of_an_answer_has_its_logprob(network: Network) -> None:
    best = searched(network, make_search(3, logprobs=2, max_tokens=5), [1, 5])
    for hypothesis in best:
        assert [told.chosen.token for told in hypothesis.logprobs] == list(hypothesis.tokens)
        total = sum(told.chosen.logprob for told in hypothesis.logprobs)
        assert total / len(hypothesis.tokens) == pytest.approx(hypothesis.score, abs=1e-4)
        assert {len(told.top) for told in hypothesis.logprobs} == {2}


def test_fewer_tokens_than_beams_still_search() -> None:
    search = BeamSearch(SamplingParams(n=4, beam=BeamParams()), vocab_size=3, eos_ids={0}, max_tokens=3)
    rows = 1
    while not search.is_done:
        rows = len(search.advance(torch.randn(rows, 3)))
        assert rows == search.live_beams
    assert len(search.best()) == 4


def test_a_row_that_is_not_finite_ends_the_search() -> None:
    with pytest.raises(EngineFailed, match="not finite"):
        make_search(2).advance(torch.full((1, VOCAB), torch.nan))


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.5},
        {"top_p": 0.9},
        {"top_k": 3},
        {"min_p": 0.1},
        {"presence_penalty": 1.0},
        {"frequency_penalty": 1.0},
        {"repetition_penalty": 1.1},
        {"logit_bias": {1: 1.0}},
    ],
    ids=str,
)
def test_a_setting_that_would_do_nothing_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="does nothing in a beam search") as refused:
        make_search(2, **settings)
    assert refused.value.field == next(iter(settings))
