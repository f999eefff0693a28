"""The forward pass of four model families. Attention is a parameter: it takes queries, keys and values.

Beyond the arithmetic, **the bits of a token's result depend on its own past alone**, not on the number of other tokens
in the step. A prefix hit computes fewer rows than a miss and must write the same bytes. Two things on a CPU would break
that (measured, see docs/quality.md): matrix products, which `matrix.py` handles, and torch's `silu`, which computes the
last few elements of a tensor differently.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from engine_agent.engine.config import ModelConfig, read_config
from engine_agent.engine.matrix import Matrix, PlainMatrix, matrix
from engine_agent.engine.rope import rope_tables
from engine_agent.engine.weights import EMBEDDING, HEAD, NORM, Identity, shapes_of, tensors

MOST_COPIED_HEAD = 64 << 20  # bytes of an embedding up to which a second, faster copy is made for the head


class Attention(Protocol):
    """Writes keys and values, and reads them for attention: one batch, all of its layers."""

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Map [tokens, heads, head_size] before rotary positions and [tokens, kv_heads, head_size] twice to a result
        like queries.

        `ModelConfig.windows` says how far a layer sees.
        """
        ...


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights; those that multiply the same input are stacked in one matrix."""

    input_norm: Tensor
    queries_keys_values: Matrix
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Matrix
    inner_norm: Tensor
    gate_up: Matrix
    down: Matrix


@dataclass(frozen=True, slots=True)
class Model:
    config: ModelConfig
    revision: str  # as `model_revision` returns it
    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Matrix
    cos: Tensor  # one table for every batch, so that an angle always has the same bits
    sin: Tensor

    @torch.no_grad()
    def hidden(self, tokens: Tensor, attend: Attention) -> Tensor:
        """Return the last layer's output for each token of a batch, [tokens, hidden_size]; sequences are joined."""
        x = functional.embedding(tokens, self.embedding)
        for number, layer in enumerate(self.layers):
            x = x + self._attended(number, layer, self._normed(x, layer.input_norm), attend)
            gate, up = layer.gate_up(self._normed(x, layer.inner_norm)).chunk(2, dim=-1)
            x = x + layer.down(silu(gate) * up)
        return self._normed(x, self.norm)

    @torch.no_grad()
    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of the next token, float32 [tokens, vocab_size], for the rows that need them."""
        return self.head(hidden).float()

    def _attended(self, number: int, layer: Layer, x: Tensor, attend: Attention) -> Tensor:
        config = self.config
        vectors = layer.queries_keys_values(x).view(len(x), -1, config.head_size)
        queries, keys, values = vectors.split((config.heads, config.kv_heads, config.kv_heads), dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            queries, keys = self._normed(queries, layer.query_norm), self._normed(keys, layer.key_norm)
        return layer.output(attend(number, queries, keys, values).reshape(len(x), -1))

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, self.config.norm_epsilon)


def silu(x: Tensor) -> Tensor:
    """Return `x * sigmoid(x)`, with bits that do not depend on an element's position."""
    return x / x.neg().exp_().add_(1)


def load_model(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    most_positions: int | None = None,
) -> Model:
    """Load the model in a Hugging Face folder, for contexts of at most `most_positions`.

    Each tensor is read once and stored once. Raises BadModel, OSError.
    """
    config = read_config(folder)
    identity, room = Identity(config), _Room(config, dtype, device)
    for name, tensor in tensors(folder, config):
        identity.add(name, tensor)
        room.fill(name, tensor)
    embedding = room.taken(EMBEDDING)
    layers = tuple(_layer(room, number) for number in range(config.layers))
    positions = min(config.max_positions, most_positions or config.max_positions)
    cos, sin = (table.to(device) for table in rope_tables(config, positions))
    head = _tied_head(embedding) if config.is_tied else matrix(room.taken(HEAD))
    return Model(config, identity.revision, embedding, layers, room.taken(NORM), head, cos, sin)


class _Room:
    """Memory for all tensors of a model; those of one matrix are adjacent."""

    STACKED = (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj"))

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device | str) -> None:
        self._shapes = shapes_of(config)
        self._wholes: dict[str, Tensor] = {}
        self._places: dict[str, tuple[str, int]] = {}  # the whole that contains a tensor, and its first row there
        stacks = [
            [f"model.layers.{number}.{name}.{kind}" for name in names]
            for number in range(config.layers)
            for names in self.STACKED
            for kind in ("weight", "bias")
        ]
        for names in [names for names in stacks if names[0] in self._shapes]:
            self._add(names, dtype, device)
        for name in self._shapes.keys() - self._places.keys():
            self._add([name], dtype, device)

    def _add(self, names: list[str], dtype: torch.dtype, device: torch.device | str) -> None:
        height = 0
        for name in names:
            self._places[name] = names[0], height
            height += self._shapes[name][0]
        shape = (height, *self._shapes[names[0]][1:])
        self._wholes[names[0]] = torch.empty(shape, dtype=dtype, device=device)

    def fill(self, name: str, tensor: Tensor) -> None:
        whole, begin = self._places[name]
        self._wholes[whole][begin : begin + len(tensor)].copy_(tensor)

    def taken(self, name: str) -> Tensor:
        """Return the whole that begins with this tensor. The caller must keep it, or its memory is freed."""
        return self._wholes.pop(name)

    def maybe(self, name: str) -> Tensor | None:
        return self.taken(name) if name in self._wholes else None


def _layer(room: _Room, number: int) -> Layer:
    prefix = f"model.layers.{number}."

    def product(name: str) -> Matrix:
        return matrix(room.taken(f"{prefix}{name}.weight"), room.maybe(f"{prefix}{name}.bias"))

    return Layer(
        input_norm=room.taken(f"{prefix}input_layernorm.weight"),
        queries_keys_values=product("self_attn.q_proj"),
        query_norm=room.maybe(f"{prefix}self_attn.q_norm.weight"),
        key_norm=room.maybe(f"{prefix}self_attn.k_norm.weight"),
        output=product("self_attn.o_proj"),
        inner_norm=room.taken(f"{prefix}post_attention_layernorm.weight"),
        gate_up=product("mlp.gate_proj"),
        down=product("mlp.down_proj"),
    )


def _tied_head(embedding: Tensor) -> Matrix:
    """Return the tied head. The embedding for lookups stays as it is; a large one is not stored twice."""
    return matrix(embedding) if embedding.nbytes <= MOST_COPIED_HEAD else PlainMatrix(embedding)
