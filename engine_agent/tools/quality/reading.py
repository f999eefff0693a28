"""Read documents with a model through pages: prompts in chunks, the last tokens one at a time, all teacher-forced.

Decoding reads back pages that were quantised long before, as in serving. All keys and values that a token attends to
come from pages, including its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from engine_agent.engine.batch import BatchAttention, BatchRow, batch_attention
from engine_agent.engine.model import Model
from engine_agent.tools.quality.injection import NOTHING, Injection
from kernels.layout import PageLayout
from kernels.rope import apply_rope
from kernels.scales import ScaleSet, neutral_scales
from kernels.tables import Rope

CHUNK_TOKENS = 256
DECODED_TOKENS = 64

Observe = Callable[[int, Tensor, Tensor], None]  # layer, keys with their positions, values


@dataclass(frozen=True, slots=True)
class Row:
    """One document's part of a step: the offsets of its pages, and which of its tokens are computed now."""

    pages: Sequence[int]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class InjectedAttention:
    """The engine's attention, with keys changed between their rotary positions and the pages."""

    batch: BatchAttention
    injection: Injection
    observe: Observe | None = None

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        keys = self.injection.keys(layer, apply_rope(keys, self.batch.rope))
        if self.observe:
            self.observe(layer, keys, values)
        self.batch.write(layer, keys, values, is_turned=True)
        return self.batch.read(layer, self.injection.queries(apply_rope(queries, self.batch.rope)))


@dataclass(frozen=True, slots=True)
class DenseAttention:
    """Attention over whole sequences without pages: the reference for the paged path."""

    rope: Rope
    sequences: int
    windows: Sequence[int | None]

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(0, (self.sequences, -1)).transpose(1, 2)
            for part in (apply_rope(queries, self.rope), apply_rope(keys, self.rope), values)
        )
        mask = _seen(q.shape[2], self.windows[layer], q.device)
        attended: Tensor = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        return attended.transpose(1, 2).flatten(0, 1)


def _seen(tokens: int, window: int | None, device: torch.device) -> Tensor | None:
    """Return a mask of which token sees which; None: each sees all before it."""
    if window is None:
        return None
    full_mask = torch.ones(tokens, tokens, dtype=torch.bool, device=device)
    return full_mask.tril() & full_mask.triu(1 - window)


@dataclass(slots=True)
class Pages:
    """An arena with exactly the pages for some sequences of one length, sequence by sequence."""

    layout: PageLayout
    sequences: int
    tokens: int
    device: torch.device
    arena: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.arena = torch.zeros(
            self.sequences * self.each * self.layout.page_bytes, dtype=torch.uint8, device=self.device
        )

    @property
    def each(self) -> int:
        return -(-self.tokens // self.layout.block_tokens)

    def of(self, sequence: int) -> list[int]:
        """Return the offsets of a sequence's pages."""
        first = sequence * self.each
        return [page * self.layout.page_bytes for page in range(first, first + self.each)]


@dataclass(frozen=True, slots=True)
class Reader:
    """One model in one KV format with one scale set."""

    model: Model
    layout: PageLayout
    scales: ScaleSet
    injection: Injection = NOTHING
    observe: Observe | None = None

    def read(self, documents: Tensor, *, decoded_tokens: int = DECODED_TOKENS) -> Tensor:
        """Return the logits after each token, [documents, tokens, vocab], for equally long documents [documents,
        tokens].
        """
        hidden = self.hidden(documents, decoded_tokens=decoded_tokens)
        return self.model.logits(hidden.flatten(0, 1)).view(*documents.shape, -1)

    def hidden(
        self, documents: Tensor, *, chunk_tokens: int = CHUNK_TOKENS, decoded_tokens: int = DECODED_TOKENS
    ) -> Tensor:
        """Return the last layer's output for each token: prompts in chunks, then the last tokens one at a time."""
        sequences, length = documents.shape
        pages = Pages(self.layout, sequences, length, documents.device)
        prompt = length - decoded_tokens
        steps = [(at, min(at + chunk_tokens, prompt)) for at in range(0, prompt, chunk_tokens)]
        steps += [(at, at + 1) for at in range(prompt, length)]
        read = []
        for begin, end in steps:
            rows = [Row(pages.of(sequence), begin, end) for sequence in range(sequences)]
            step_output = self.step(pages.arena, rows, documents[:, begin:end].flatten(), is_decode=begin >= prompt)
            read.append(step_output.unflatten(0, (sequences, -1)))
        return torch.cat(read, dim=1)

    def step(self, arena: Tensor, rows: Sequence[Row], tokens: Tensor, *, is_decode: bool = False) -> Tensor:
        """Return the last layer's output for these rows' tokens, and write their keys and values into the pages."""
        name = self.layout.kv_format.name
        parts = [BatchRow(name, row.pages, row.begin, row.end, is_decode) for row in rows]
        batch = batch_attention(self.model, arena, {name: self.layout}, {name: self.scales}, parts)
        return self.model.hidden(tokens, InjectedAttention(batch, self.injection, self.observe))


def reader(model: Model, layout: PageLayout, scales: ScaleSet | None = None, injection: Injection = NOTHING) -> Reader:
    """Return a reader; without scales, with neutral ones."""
    return Reader(model, layout, scales or neutral_scales(layout, model.embedding.device), injection)


def read_densely(model: Model, documents: Tensor) -> Tensor:
    """Return the logits after each token without pages, [documents, tokens, vocab]."""
    return model.logits(hidden_densely(model, documents).flatten(0, 1)).view(*documents.shape, -1)


def hidden_densely(model: Model, documents: Tensor) -> Tensor:
    """Return the last layer's output for each token without pages, [documents, tokens, hidden_size]."""
    sequences, length = documents.shape
    positions = torch.arange(length, device=documents.device).repeat(sequences)
    attend = DenseAttention(Rope(model.cos, model.sin, positions), sequences, model.config.windows)
    return model.hidden(documents.flatten(), attend).view(*documents.shape, -1)
