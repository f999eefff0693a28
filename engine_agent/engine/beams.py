"""Beam search: which beams continue, from which parent and with which token. Pure; the engine manages their pages.

It follows the rules of Hugging Face's `generate(num_beams=…, do_sample=False)`, whose results depend on details: a
hypothesis can end only from among the best continuations, and its score is the sum of its tokens' log probabilities,
divided by its length (with the ending token) to the power of `length_penalty`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from engine_agent.engine.errors import BadRequest, EngineFailed
from engine_agent.engine.logits import token_logprobs
from engine_agent.engine.outputs import TokenLogprobs
from engine_agent.engine.params import BeamParams, SamplingParams
from engine_agent.engine.sampler import check_tokens, end_tokens

_ALONE = (
    *("top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias"),
    *("seed", "stop", "include_stop"),
)
_DEFAULTS = SamplingParams()


def check_beams(params: SamplingParams) -> None:
    """Raise BadRequest for a sampling setting that has no effect in a beam search."""
    if params.temperature not in (0, 1):
        raise BadRequest("temperature", f"{params.temperature} does nothing in a beam search: leave it out")
    for name in _ALONE:
        value = getattr(params, name)
        if value != getattr(_DEFAULTS, name):
            raise BadRequest(name, f"{value!r} does nothing in a beam search: leave it out")


@dataclass(frozen=True, slots=True)
class Step:
    """A live beam after a step: the index of its parent beam, and the token it adds."""

    parent: int
    token: int


@dataclass(frozen=True, slots=True)
class Hypothesis:
    tokens: tuple[int, ...]  # including the token that ended it
    score: float
    finish: Literal["stop", "length"]
    logprobs: tuple[TokenLogprobs, ...] = ()  # as many as tokens, if requested


@dataclass(frozen=True, slots=True)
class _Node:
    """The last token of a beam and, through its parents, the whole beam."""

    token: int
    parent: "_Node | None"
    logprobs: TokenLogprobs | None

    def path(self) -> "list[_Node]":
        path: list[_Node] = []
        node: _Node | None = self
        while node is not None:
            path.append(node)
            node = node.parent
        return path[::-1]


@dataclass(frozen=True, slots=True)
class _Beam:
    node: _Node | None  # None: only the prompt
    logprob: float  # sum over all its tokens


@dataclass(frozen=True, slots=True)
class _Next:
    parent: int
    beam: _Beam
    ends: bool


class BeamSearch:
    """One prompt's search for its `n` best answers. `max_tokens` is the longest possible answer."""

    def __init__(self, params: SamplingParams, *, vocab_size: int, eos_ids: Iterable[int], max_tokens: int) -> None:
        check_tokens(params, vocab_size)
        check_beams(params)
        self.params = params
        self.end_tokens = end_tokens(params, eos_ids)
        self.generated_tokens = 0
        self.is_done = False
        self._rules = params.beam or BeamParams()
        self._forbidden = sorted(token for token in self.end_tokens if token < vocab_size)
        self._max_tokens = max_tokens
        self._live = [_Beam(None, 0.0)]
        self._finished: list[Hypothesis] = []

    @property
    def live_beams(self) -> int:
        """Return how many rows `advance` needs: one before the first step, `n` after it."""
        return 0 if self.is_done else len(self._live)

    def advance(self, logits: Tensor) -> list[Step]:
        """Advance by one token and return the live beams, or nothing when done.

        `logits` are float32 [live beams, vocab_size]. Raises EngineFailed where a row is not finite.
        """
        if not bool(logits.max(dim=1).values.isfinite().all()):
            raise EngineFailed("", "the model's numbers are not finite")
        following = self._following(logits)
        self.generated_tokens += 1
        self._finish(following)
        going_on = [at for at in following if not at.ends][: self.params.n]
        self._live = [at.beam for at in going_on]
        self.is_done = not going_on or self._is_complete()
        return [] if self.is_done else [Step(at.parent, at.beam.node.token) for at in going_on if at.beam.node]

    def best(self) -> list[Hypothesis]:
        """Return up to `n` best answers, best first. Before the end, live beams count as cut off here."""
        cut = [] if self.is_done else [self._hypothesis(beam, "length") for beam in self._live if beam.node]
        return _best(self._finished + cut, self.params.n)

    def _following(self, logits: Tensor) -> list[_Next]:
        """Return the best continuations of all beams together, best first, enough that some of them do not end."""
        scores = torch.log_softmax(logits, dim=-1)
        if self.generated_tokens < self.params.min_tokens:
            scores[:, self._forbidden] = -torch.inf
        live_logprobs = torch.tensor([beam.logprob for beam in self._live], device=logits.device)
        total_logprobs = (scores + live_logprobs[:, None]).flatten()
        candidates = max(2, 1 + len(self.end_tokens)) * self.params.n
        best, positions = total_logprobs.topk(min(candidates, len(total_logprobs)))
        return [
            self._next(logits, position // logits.shape[1], position % logits.shape[1], score)
            for score, position in zip(best.tolist(), positions.tolist(), strict=True)
            if score > -torch.inf
        ]

    def _next(self, logits: Tensor, parent: int, token: int, score: float) -> _Next:
        alternatives = self.params.logprobs
        logprobs = None if alternatives is None else token_logprobs(logits[parent].cpu().numpy(), token, alternatives)
        ends = token in self.end_tokens or self.generated_tokens + 1 >= self._max_tokens
        return _Next(parent, _Beam(_Node(token, self._live[parent].node, logprobs), score), ends)

    def _finish(self, following: list[_Next]) -> None:
        """Add ended beams among the best `n` continuations to the hypotheses. Later ones are only substitutes."""
        ended = [at.beam for at in following[: self.params.n] if at.ends]
        arrived = [self._hypothesis(beam, self._reason(beam)) for beam in ended]
        self._finished = _best(self._finished + arrived, self.params.n)

    def _is_complete(self) -> bool:
        """Return whether all `n` exist and no live beam would be among them if it ended here."""
        if len(self._finished) < self.params.n:
            return False
        is_first_enough = self._rules.early_stopping or self.params.n == 1  # one beam is greedy search
        return is_first_enough or self._score(self._live[0].logprob) <= self._finished[-1].score

    def _hypothesis(self, beam: _Beam, finish: Literal["stop", "length"]) -> Hypothesis:
        path = beam.node.path() if beam.node else []
        logprobs = tuple(node.logprobs for node in path if node.logprobs is not None)
        return Hypothesis(tuple(node.token for node in path), self._score(beam.logprob), finish, logprobs)

    def _reason(self, beam: _Beam) -> Literal["stop", "length"]:
        return "stop" if beam.node and beam.node.token in self.end_tokens else "length"

    def _score(self, logprob: float) -> float:
        return logprob / float(self.generated_tokens**self._rules.length_penalty)


def _best(hypotheses: list[Hypothesis], count: int) -> list[Hypothesis]:
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:count]
