"""One step's forward pass: which tokens of which sequences, and the logits for the rows that need them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine_agent.engine.batch import BatchRow, batch_attention
from engine_agent.engine.model import Model
from kernels.layout import PageLayout
from kernels.scales import ScaleSet


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row whose `tokens` are computed now. `wants_logits`: after the last of them."""

    row: BatchRow
    tokens: Sequence[int]
    wants_logits: bool


@dataclass(frozen=True, slots=True)
class Computed:
    """The results of a step.

    `logits` [rows with wants_logits, vocab_size] float32, in the rows' order, on the device. `broken`: rows with a key
    or value that is not finite.
    """

    logits: Tensor
    broken: frozenset[int]


@dataclass(frozen=True, slots=True)
class Runner:
    model: Model
    arena: Tensor
    layouts: Mapping[str, PageLayout]
    scales: Mapping[str, ScaleSet]

    @torch.no_grad()
    def run(self, rows: Sequence[RunRow]) -> Computed:
        attention = batch_attention(self.model, self.arena, self.layouts, self.scales, [row.row for row in rows])
        tokens = torch.tensor([token for row in rows for token in row.tokens], dtype=torch.int64)
        hidden = self.model.hidden(tokens.to(self.arena.device), attention)
        logits_rows, ends, end = list[int](), list[int](), 0
        for row in rows:
            end += len(row.tokens)
            ends.append(end)
            if row.wants_logits:
                logits_rows.append(end - 1)
        logits = (
            self.model.logits(hidden[logits_rows]) if logits_rows else hidden.new_empty((0, 0), dtype=torch.float32)
        )
        return Computed(logits, _broken(attention.refused(), ends))


def _broken(refused: Tensor, ends: Sequence[int]) -> frozenset[int]:
    if not bool(refused.any()):
        return frozenset()
    begins = [0, *ends[:-1]]
    return frozenset(row for row, (begin, end) in enumerate(zip(begins, ends, strict=True)) if refused[begin:end].any())
