"""Llama's forward pass. Attention is somebody else's: the model hands out queries, keys and values and gets a mix back.

What is promised beyond the arithmetic: **the bits of a token's result depend on its own past alone**, not on how many
other tokens are computed beside it. A prefix hit computes fewer rows than a miss does and must write the very bytes the
miss would have written. Two things on a CPU would break that, and both are dealt with here (measured, see
docs/quality.md): float32 matrix products of one to three rows go through other kernels than larger ones, so rows are
filled up to a multiple of `ROWS`; and torch's `silu` computes the last few elements of a tensor in another way.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from engine_agent.engine.config import ModelConfig, read_config
from engine_agent.engine.rope import rope_tables
from engine_agent.engine.weights import HEAD, read_weights

ROWS = 4  # matrix products of a multiple of these many rows agree to the bit, row by row, at 1 to 8 threads

ROWS_ON_GPU = 64  # cuBLAS chooses by the number of rows; nobody could measure this yet


class Attention(Protocol):
    """Where keys and values go, and where attention reads them: one batch, all of its layers."""

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """[tokens, heads, head_size] before rotary positions, [tokens, kv_heads, head_size] twice -> like queries."""
        ...


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights; what multiplies the same input lies side by side in one matrix."""

    input_norm: Tensor
    queries_keys_values: Tensor
    output: Tensor
    inner_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class Model:
    config: ModelConfig
    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Tensor
    cos: Tensor  # one table for every batch, so that an angle is always the same bits
    sin: Tensor

    @torch.no_grad()
    def hidden(self, tokens: Tensor, attend: Attention) -> Tensor:
        """The last layer's output for each token of a batch, [tokens, hidden_size]; sequences one behind the other."""
        config = self.config
        x = functional.embedding(tokens, self.embedding)
        for number, layer in enumerate(self.layers):
            mixed = linear(self._normed(x, layer.input_norm), layer.queries_keys_values)
            vectors = mixed.view(len(tokens), -1, config.head_size)
            parts = vectors.split((config.heads, config.kv_heads, config.kv_heads), dim=1)
            read = attend(number, *parts)
            x = x + linear(read.reshape(len(tokens), -1), layer.output)
            gate, up = linear(self._normed(x, layer.inner_norm), layer.gate_up).chunk(2, dim=-1)
            x = x + linear(silu(gate) * up, layer.down)
        return self._normed(x, self.norm)

    @torch.no_grad()
    def logits(self, hidden: Tensor) -> Tensor:
        """What comes next, [tokens, vocab_size], float32; of the rows that somebody wants to know."""
        return linear(hidden, self.head).float()

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, self.config.norm_epsilon)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """`x @ weight.T`, each row the same bits however many there are."""
    missing = -len(x) % (ROWS_ON_GPU if x.is_cuda else ROWS)
    if not missing:
        return functional.linear(x, weight)
    return functional.linear(functional.pad(x, (0, 0, 0, missing)), weight)[:-missing]


def silu(x: Tensor) -> Tensor:
    """`x * sigmoid(x)`, each element the same bits wherever it lies."""
    return x / (1 + torch.exp(-x))


def load_model(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    most_positions: int | None = None,
) -> Model:
    """The model in a Hugging Face folder, for contexts of at most so many positions. Raises BadModel, OSError."""
    config = read_config(folder)
    weights = {name: tensor.to(device) for name, tensor in read_weights(folder, config, dtype=dtype).items()}

    def joined(number: int, *names: str) -> Tensor:
        parts = [weights.pop(f"model.layers.{number}.{name}.weight") for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    embedding = weights["model.embed_tokens.weight"]
    layers = tuple(
        Layer(
            input_norm=joined(number, "input_layernorm"),
            queries_keys_values=joined(number, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            output=joined(number, "self_attn.o_proj"),
            inner_norm=joined(number, "post_attention_layernorm"),
            gate_up=joined(number, "mlp.gate_proj", "mlp.up_proj"),
            down=joined(number, "mlp.down_proj"),
        )
        for number in range(config.layers)
    )
    head = embedding if config.is_tied else weights[HEAD]
    positions = min(config.max_positions, most_positions or config.max_positions)
    cos, sin = (table.to(device) for table in rope_tables(config, positions))
    return Model(config, embedding, layers, weights["model.norm.weight"], head, cos, sin)
