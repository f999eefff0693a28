"""Sampling of the next token: one sampler for each choice, and one call for a whole batch.

A choice's tokens depend only on its own logits, settings, seed and past. Its random numbers are stateless: the n-th is
a keyed hash of n, so a copy, a preemption or another batch changes nothing.
"""

import os
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
from torch import Tensor

from engine_agent.engine.errors import BadRequest
from engine_agent.engine.logits import Ids, Row, candidates, drawn, is_sound, penalised, token_logprobs
from engine_agent.engine.outputs import TokenLogprobs
from engine_agent.engine.params import SamplingParams, shown


@dataclass(frozen=True, slots=True)
class Sampled:
    token: int
    logprobs: TokenLogprobs | None = None


class NotFinite:
    """A row from which no token can be sampled: it contains NaN or only infinities. Other rows are unaffected."""


NOT_FINITE: Final = NotFinite()


def check_tokens(params: SamplingParams, vocab_size: int) -> None:
    """Raise BadRequest for a setting with a token that the model does not have."""
    for name, tokens in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
        for token in tokens:
            if type(token) is not int or not 0 <= token < vocab_size:
                raise BadRequest(name, f"{shown(token)} is no token of this model: they are 0 to {vocab_size - 1}")


def end_tokens(params: SamplingParams, eos_ids: Iterable[int]) -> frozenset[int]:
    """Return the tokens that end a choice."""
    return frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else frozenset(eos_ids))


class Chance:
    """Random numbers from 0 to below 1, equal for equal seed and choice. Without a seed they are new each time."""

    def __init__(self, seed: int | None, index: int) -> None:
        named = os.urandom(16) if seed is None else seed.to_bytes(16, "little", signed=True)
        self._key = named + index.to_bytes(8, "little")

    def number(self, draw: int) -> float:
        digest = blake2b(draw.to_bytes(8, "little"), key=self._key, digest_size=8).digest()
        return (int.from_bytes(digest, "little") >> 11) / 2**53


class Sampler:
    """The sampler of one choice. `index` distinguishes it from the request's others, which share the seed."""

    def __init__(
        self,
        params: SamplingParams,
        prompt: Sequence[int],
        *,
        vocab_size: int,
        eos_ids: Iterable[int],
        index: int = 0,
    ) -> None:
        check_tokens(params, vocab_size)
        self.params = params
        self.end_tokens = end_tokens(params, eos_ids)
        self.generated_tokens = 0
        self._chance = Chance(params.seed, index)
        self._bias_ids = np.fromiter(params.logit_bias.keys(), np.intp)
        self._bias = np.fromiter(params.logit_bias.values(), np.float32)
        self._forbidden = np.array(sorted(token for token in self.end_tokens if token < vocab_size), np.intp)
        self._has_penalties = bool(
            params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1
        )
        self._past = _Past(prompt if params.repetition_penalty != 1 else ()) if self._has_penalties else None

    def copy(self) -> "Sampler":
        """Return a copy with the same past and the same future draws."""
        duplicate = copy(self)
        duplicate._past = self._past.copy() if self._past else None
        return duplicate

    @property
    def is_plain(self) -> bool:
        """Return whether the next token is the likeliest of the unmodified row, without logprobs."""
        return self.params.is_greedy and self.params.logprobs is None and not self._changes_logits

    def sample(self, logits: Tensor) -> Sampled | NotFinite:
        """Return the next token for float32 logits [vocab_size], and add it to this choice's past."""
        return self.sample_row(logits.cpu().numpy())

    def sample_row(self, row: Row) -> Sampled | NotFinite:
        if not is_sound(row):
            return NOT_FINITE
        changed = self._changed(row) if self._changes_logits else row
        if not is_sound(changed):
            return NOT_FINITE
        token = int(changed.argmax()) if self.params.is_greedy else self._draw(changed)
        alternatives = self.params.logprobs
        answer = Sampled(token, None if alternatives is None else token_logprobs(row, token, alternatives))
        self.accept(token)
        return answer

    def accept(self, token: int) -> None:
        """Add a token to the answer, however it was chosen."""
        self.generated_tokens += 1
        if self._past is not None:
            self._past.add(token)

    @property
    def _changes_logits(self) -> bool:
        return self._has_penalties or len(self._bias) > 0 or self._is_too_short

    @property
    def _is_too_short(self) -> bool:
        return self.generated_tokens < self.params.min_tokens and len(self._forbidden) > 0

    def _changed(self, row: Row) -> Row:
        row = row.copy()
        row[self._bias_ids] += self._bias
        if self._is_too_short:
            row[self._forbidden] = -np.inf
        return row if self._past is None else self._penalised(row, self._past)

    def _penalised(self, row: Row, past: "_Past") -> Row:
        return penalised(
            row,
            seen=past.seen,
            repetition=self.params.repetition_penalty,
            used=past.used,
            counts=past.counts,
            frequency=self.params.frequency_penalty,
            presence=self.params.presence_penalty,
        )

    def _draw(self, row: Row) -> int:
        params = self.params
        weights = candidates(
            row, temperature=params.temperature, top_k=params.top_k, top_p=params.top_p, min_p=params.min_p
        )
        return drawn(weights, self._chance.number(self.generated_tokens))


class _Past:
    """The tokens a choice has seen and how often each was generated, updated so that a step need not scan the past."""

    def __init__(self, prompt: Sequence[int]) -> None:
        prompt_tokens = np.unique(np.asarray(prompt, dtype=np.intp))
        self._slots = {int(token): slot for slot, token in enumerate(prompt_tokens)}
        self._ids, self._counts = prompt_tokens, np.zeros(len(prompt_tokens), np.float32)

    def copy(self) -> "_Past":
        duplicate = copy(self)
        duplicate._slots, duplicate._ids, duplicate._counts = dict(self._slots), self._ids.copy(), self._counts.copy()
        return duplicate

    def add(self, token: int) -> None:
        slot = self._slots.setdefault(token, len(self._slots))
        if slot >= len(self._ids):
            room = max(16, len(self._ids))
            self._ids = np.concatenate((self._ids, np.zeros(room, np.intp)))
            self._counts = np.concatenate((self._counts, np.zeros(room, np.float32)))
        self._ids[slot] = token
        self._counts[slot] += 1

    @property
    def seen(self) -> Ids:
        return self._ids[: len(self._slots)]

    @property
    def used(self) -> Ids:
        return self.seen[self._counts[: len(self._slots)] > 0]

    @property
    def counts(self) -> Row:
        counts = self._counts[: len(self._slots)]
        return counts[counts > 0]


def sample_batch(samplers: Sequence[Sampler], logits: Tensor) -> list[Sampled | NotFinite]:
    """Return the next token of each choice from float32 logits [choices, vocab_size]."""
    answers: list[Sampled | NotFinite] = [NOT_FINITE] * len(samplers)
    plain = [at for at, sampler in enumerate(samplers) if sampler.is_plain]
    changing = [at for at, sampler in enumerate(samplers) if not sampler.is_plain]
    if plain:
        peaks, tokens = _rows(logits, plain).max(dim=1)
        for at, is_finite, token in zip(plain, peaks.isfinite().tolist(), tokens.tolist(), strict=True):
            if is_finite:
                samplers[at].accept(token)
                answers[at] = Sampled(token)
    if changing:
        for at, row in zip(changing, _rows(logits, changing).cpu().numpy(), strict=True):
            answers[at] = samplers[at].sample_row(row)
    return answers


def _rows(logits: Tensor, row_indices: list[int]) -> Tensor:
    return logits if len(row_indices) == len(logits) else logits[row_indices]
