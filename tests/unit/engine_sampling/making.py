"""Rows of logits and samplers, the least that works."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from engine_agent.engine.params import SamplingParams
from engine_agent.engine.sampler import NotFinite, Sampled, Sampler, sample_batch

VOCAB = 50
EOS = 0


def make_logits(*, rows: int = 1, vocab: int = VOCAB, seed: int = 1, spread: float = 3.0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread


def make_sampler(*, prompt: Sequence[int] = (1, 2, 3), vocab: int = VOCAB, index: int = 0, **settings: Any) -> Sampler:
    return Sampler(SamplingParams(**settings), prompt, vocab_size=vocab, eos_ids={EOS}, index=index)


def token_of(sampled: Sampled | NotFinite) -> int:
    assert isinstance(sampled, Sampled)
    return sampled.token


def tokens_of(sampler: Sampler, logits: Tensor) -> list[int]:
    """What it answers when it meets these rows one after the other."""
    return [token_of(sample_batch([sampler], row[None])[0]) for row in logits]
