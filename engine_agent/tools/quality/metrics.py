"""Compare two readings of the same text: perplexity, divergence, agreement, and their confidence intervals.

The bootstrap resamples documents, not tokens, because errors within one document are correlated.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

RESAMPLES = 4_000
SEED = 20_260
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its confidence interval."""

    value: float
    low: float
    high: float


def divergence(reference: Tensor, compared: Tensor) -> Tensor:
    """Return KL(reference || compared) of each row, in nats; both are log-probabilities [tokens, vocab]."""
    return (reference.exp() * (reference - compared)).sum(-1)


def token_losses(log_probabilities: Tensor, following: Tensor) -> Tensor:
    """Return the loss in nats for each token that really followed."""
    return -log_probabilities.gather(-1, following[..., None]).squeeze(-1)


@dataclass(slots=True)
class Sums:
    """Sums over all tokens of one document."""

    loss: float = 0.0  # nats
    reference_loss: float = 0.0
    divergence: float = 0.0
    tokens: int = 0


@dataclass(slots=True)
class Comparison:
    """One reading compared with its reference, by document."""

    documents: dict[int, Sums] = field(default_factory=dict)
    agreements: int = 0
    divergences: list[Tensor] = field(default_factory=list)  # by token
    decoded: list[Tensor] = field(default_factory=list)  # the decoded part of `divergences`

    def add(self, document: int, reference: Tensor, compared: Tensor, following: Tensor, *, decoded: int) -> None:
        """Add a part of a document: two [tokens, vocab] log-probabilities and the next tokens, decoded ones last."""
        divergences = divergence(reference, compared).cpu()
        sums = self.documents.setdefault(document, Sums())
        sums.loss += token_losses(compared, following).double().sum().item()
        sums.reference_loss += token_losses(reference, following).double().sum().item()
        sums.divergence += divergences.double().sum().item()
        sums.tokens += len(following)
        self.agreements += int((reference.argmax(-1) == compared.argmax(-1)).sum())
        self.divergences.append(divergences)
        self.decoded.append(divergences[len(divergences) - decoded :])

    def merge(self, part: "Comparison") -> None:
        """Add another part of the same reading."""
        for number, part_sums in part.documents.items():
            sums = self.documents.setdefault(number, Sums())
            for name in ("loss", "reference_loss", "divergence", "tokens"):
                setattr(sums, name, getattr(sums, name) + getattr(part_sums, name))
        self.agreements += part.agreements
        self.divergences += part.divergences
        self.decoded += part.decoded

    @property
    def tokens(self) -> int:
        return sum(sums.tokens for sums in self.documents.values())

    @property
    def perplexity(self) -> float:
        return math.exp(sum(sums.loss for sums in self.documents.values()) / self.tokens)

    @property
    def agreement(self) -> float:
        """Return the share of tokens for which both have the same likeliest token."""
        return self.agreements / self.tokens

    @property
    def p99_divergence(self) -> float:
        return torch.cat(self.divergences).double().quantile(0.99).item()

    @property
    def decoded_divergence(self) -> float:
        return torch.cat(self.decoded).double().mean().item()

    def delta_percent(self) -> Estimate:
        """Return the rise of perplexity, in %."""
        rise = self._per_token([sums.loss - sums.reference_loss for sums in self.documents.values()])
        return Estimate(*(100 * math.expm1(exponent) for exponent in (rise.value, rise.low, rise.high)))

    def mean_divergence(self) -> Estimate:
        return self._per_token([sums.divergence for sums in self.documents.values()])

    def _per_token(self, sums: Sequence[float]) -> Estimate:
        return per_token(sums, [document_sums.tokens for document_sums in self.documents.values()])


def per_token(sums: Sequence[float], tokens: Sequence[int]) -> Estimate:
    """Return the mean over all tokens, with a bootstrap interval over documents."""
    amounts = torch.tensor([sums, tokens], dtype=torch.float64)
    resampled = torch.randint(len(sums), (RESAMPLES, len(sums)), generator=torch.Generator().manual_seed(SEED))
    totals = amounts[:, resampled].sum(-1)
    tail = (1 - CONFIDENCE) / 2
    low, high = (totals[0] / totals[1]).quantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return Estimate(sum(sums) / sum(tokens), low, high)
