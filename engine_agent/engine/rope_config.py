"""A model's rotary settings, read from its `config.json`.

Both spellings are read: `rope_theta` with `rope_scaling` (transformers 4), and `rope_parameters` (5). Unknown fields of
a scaling are refused, because they would change positions in a way we do not implement. Standard library only.
"""

import math
from dataclasses import dataclass

from engine_agent.engine.fields import Fields

ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")
DEFAULT_THETA = 10_000.0
_SPELLINGS = ("rope_scaling", "rope_parameters")  # where a file has both, transformers uses the older one
_ORIGINAL = "original_max_position_embeddings"
_KNOWN = {
    *("type", "rope_type", "rope_theta", "factor", "partial_rotary_factor", _ORIGINAL),
    *("low_freq_factor", "high_freq_factor"),
    *("attention_factor", "mscale", "mscale_all_dim", "beta_fast", "beta_slow", "truncate"),
    "finetuned",  # informational: the model was trained after scaling
}


@dataclass(frozen=True, slots=True)
class Yarn:
    """YaRN's parameters: which channels it slows, by how often they turn, and the factor for cosines and sines."""

    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """The rotary settings. `factor` and the fields after it apply to some types only."""

    kind: str = "default"
    theta: float = DEFAULT_THETA
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 0
    yarn: Yarn | None = None


def read_rope(config: Fields, positions: int) -> RopeConfig:
    """Return the settings of a model with this many positions. Raises BadModel."""
    fields = config.inner(next((name for name in _SPELLINGS if config.given(name)), _SPELLINGS[1]))
    if unknown_fields := sorted(fields.names() - _KNOWN):
        raise fields.bad(unknown_fields[0], "is not served")
    for section in (config, fields):
        section.only("partial_rotary_factor", 1.0)
    theta = fields.number("rope_theta", config.number("rope_theta", DEFAULT_THETA))
    kind = fields.given("rope_type", fields.given("type", "default"))
    if kind not in ROPE_TYPES:
        raise fields.bad("rope_type", f"{kind!r} is none of {', '.join(ROPE_TYPES)}")
    if kind == "default":
        return RopeConfig(theta=theta)
    factor = fields.number("factor")
    if kind in ("linear", "dynamic"):
        return RopeConfig(kind, theta, factor)
    original = config.whole(_ORIGINAL, fields.whole(_ORIGINAL, positions))
    if kind == "yarn":
        return RopeConfig(kind, theta, factor, original_positions=original, yarn=_yarn(fields, theta, factor))
    low, high = fields.number("low_freq_factor"), fields.number("high_freq_factor")
    if low >= high:
        raise fields.bad("low_freq_factor", f"{low} is not below high_freq_factor {high}")
    return RopeConfig(kind, theta, factor, low, high, original)


def _yarn(fields: Fields, theta: float, factor: float) -> Yarn:
    if theta <= 1:
        raise fields.bad("rope_theta", f"{theta} is not above 1")
    fast, slow = fields.number("beta_fast", 32.0), fields.number("beta_slow", 1.0)
    if slow >= fast:
        raise fields.bad("beta_slow", f"{slow} is not below beta_fast {fast}")
    return Yarn(
        attention_factor=fields.number("attention_factor", _attention_factor(fields, factor)),
        beta_fast=fast,
        beta_slow=slow,
        truncate=fields.flag("truncate", True),
    )


def _attention_factor(fields: Fields, factor: float) -> float:
    """Return YaRN's default factor for a file without one."""
    if not (fields.given("mscale") and fields.given("mscale_all_dim")):
        return _magnitude(factor)
    mscale, all_dim = fields.number("mscale"), fields.number("mscale_all_dim")
    return _magnitude(factor, mscale) / _magnitude(factor, all_dim)


def _magnitude(factor: float, scale: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0
