"""What a model is, read from a Hugging Face `config.json`: sizes, how positions are counted, nothing about weights.

Both spellings of rotary settings are read: `rope_theta` with `rope_scaling` (transformers 4), and `rope_parameters`
(5). What the engine could not honour is refused by name rather than ignored: a model that runs is run as it was meant.
Standard library only.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_agent.engine.errors import BadModel

CONFIG = "config.json"
ARCHITECTURES = ("LlamaForCausalLM",)
ROPE_TYPES = ("default", "linear", "dynamic", "llama3")
DEFAULT_THETA = 10_000.0


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """How positions become angles. `factor` and what follows mean something for some types only."""

    kind: str = "default"
    theta: float = DEFAULT_THETA
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    architecture: str
    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate_size: int
    norm_epsilon: float
    max_positions: int
    rope: RopeConfig
    is_tied: bool


def read_config(folder: Path) -> ModelConfig:
    """Raises BadModel, OSError."""
    path = folder / CONFIG
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise BadModel(path, "", f"is no JSON: {problem}") from problem
    if not isinstance(document, dict):
        raise BadModel(path, "", "is no JSON object")
    return _Fields(path, document).config()


class _Fields:
    """The fields of one file; every complaint names it."""

    def __init__(self, path: Path, fields: Mapping[str, Any], prefix: str = "") -> None:
        self._path, self._fields, self._prefix = path, fields, prefix

    def config(self) -> ModelConfig:
        architecture = self._architecture()
        self._only("hidden_act", "silu")
        for name in ("attention_bias", "mlp_bias"):
            self._only(name, False)
        self._only("pretraining_tp", 1)
        hidden, heads = self.whole("hidden_size"), self.whole("num_attention_heads")
        kv_heads = self.whole("num_key_value_heads", heads)
        if heads % kv_heads:
            raise self.bad("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
        head_size = self.whole("head_dim", hidden // heads)
        if head_size % 16:
            raise self.bad("head_dim", f"{head_size} is no multiple of 16")
        positions = self.whole("max_position_embeddings")
        return ModelConfig(
            architecture=architecture,
            vocab_size=self.whole("vocab_size"),
            hidden_size=hidden,
            layers=self.whole("num_hidden_layers"),
            heads=heads,
            kv_heads=kv_heads,
            head_size=head_size,
            intermediate_size=self.whole("intermediate_size"),
            norm_epsilon=self.number("rms_norm_eps", 1e-6),
            max_positions=positions,
            rope=self._rope(positions),
            is_tied=self._flag("tie_word_embeddings"),
        )

    def whole(self, name: str, default: int | None = None) -> int:
        value = self._fields.get(name)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            raise self.bad(name, "is missing" if value is None else f"{value!r} is no whole number above 0")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._fields.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self.bad(name, "is missing" if value is None else f"{value!r} is no number above 0")
        return float(value)

    def bad(self, name: str, problem: str) -> BadModel:
        return BadModel(self._path, self._prefix + name, problem)

    def _architecture(self) -> str:
        named = self._fields.get("architectures")
        if not isinstance(named, list) or len(named) != 1 or named[0] not in ARCHITECTURES:
            raise self.bad("architectures", f"{named!r} is none of {', '.join(ARCHITECTURES)}")
        return str(named[0])

    def _flag(self, name: str) -> bool:
        value = self._fields.get(name) or False
        if type(value) is not bool:
            raise self.bad(name, f"{value!r} is neither true nor false")
        return value

    def _only(self, name: str, served: object) -> None:
        value = self._fields.get(name, served)
        if value is not None and value != served:
            raise self.bad(name, f"{value!r} is not served, only {served!r}")

    def _rope(self, positions: int) -> RopeConfig:
        named = next((name for name in ("rope_parameters", "rope_scaling") if self._fields.get(name)), "")
        given = self._fields.get(named) or {}
        if not isinstance(given, dict):
            raise self.bad(named, f"{given!r} is no JSON object")
        fields = _Fields(self._path, given, f"{named}.")
        self._only("partial_rotary_factor", 1.0)
        fields._only("partial_rotary_factor", 1.0)
        theta = fields.number("rope_theta", self.number("rope_theta", DEFAULT_THETA))
        kind = given.get("rope_type", given.get("type", "default"))
        if kind not in ROPE_TYPES:
            raise fields.bad("rope_type", f"{kind!r} is none of {', '.join(ROPE_TYPES)}")
        if kind == "default":
            return RopeConfig(theta=theta)
        factor = fields.number("factor")
        if kind != "llama3":
            return RopeConfig(kind, theta, factor)
        low, high = fields.number("low_freq_factor"), fields.number("high_freq_factor")
        if low >= high:
            raise fields.bad("low_freq_factor", f"{low} is not below high_freq_factor {high}")
        original = fields.whole("original_max_position_embeddings", positions)
        return RopeConfig(kind, theta, factor, low, high, original)
