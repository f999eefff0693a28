"""A model's configuration, read from a Hugging Face `config.json`: sizes and families, nothing about weights.

A setting that the engine cannot honour is refused by name, not ignored, so a model that runs is run as intended.
Missing fields get the defaults of `transformers` for that family. Standard library only.
"""

from dataclasses import dataclass
from pathlib import Path

from engine_agent.engine.fields import Fields, read_object
from engine_agent.engine.rope_config import RopeConfig, read_rope
from kernels.layout import MOST_HEAD_SIZE

CONFIG = "config.json"
SLIDING, FULL = "sliding_attention", "full_attention"
DEFAULT_WINDOW = 4096  # where a family has windows and the file gives no width
DEFAULT_WINDOW_LAYERS = 28

# Fields that other models of these names use and ours do not. Accepted only if missing or without effect.
_NOTHING: tuple[object, ...] = (None, False, 0, [], {})
STRANGE = (
    *("quantization_config", "compression_config", "dual_chunk_attention_config", "use_mrope", "num_experts"),
    *("num_local_experts", "is_encoder_decoder", "no_rope_layers", "attention_chunk_size", "rope_interleaved"),
    *("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention", "attention_sinks"),
    *("qk_layernorm", "use_qk_norm", "clip_qkv", "block_configs"),
)
MULTIPLIERS = (
    *("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling", "logit_scale"),
    *("pretraining_tp", "scale_emb"),
)


@dataclass(frozen=True, slots=True)
class Family:
    """The common properties of all models of one architecture, and its defaults."""

    name: str
    kv_heads: int | None = None  # None: the same as the number of heads
    head_size: int | None = None  # None: the hidden size divided by the number of heads
    qkv_bias: bool | None = None  # None: as `attention_bias` says, also for the output
    has_mlp_bias_field: bool = False
    has_qk_norm: bool = False
    windows: str = ""  # "": none; "all": every layer; "some": those that the file names


FAMILIES = {
    family.name: family
    for family in (
        Family("LlamaForCausalLM", has_mlp_bias_field=True),
        Family("MistralForCausalLM", kv_heads=8, qkv_bias=False, windows="all"),
        Family("Qwen2ForCausalLM", kv_heads=32, qkv_bias=True, windows="some"),
        Family("Qwen3ForCausalLM", kv_heads=32, head_size=128, has_qk_norm=True, windows="some"),
    )
}
ARCHITECTURES = tuple(FAMILIES)


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
    windows: tuple[int | None, ...]  # for each layer, how many of its last tokens it sees; None: all
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_mlp_bias: bool = False
    has_qk_norm: bool = False  # queries and keys of each head are normalised before positions are applied


def read_config(folder: Path) -> ModelConfig:
    """Return the configuration in the folder. Raises BadModel, OSError."""
    path = folder / CONFIG
    return _config(Fields(path, read_object(path)))


def _config(fields: Fields) -> ModelConfig:
    family = _family(fields)
    fields.only("hidden_act", "silu")
    for name in STRANGE:
        fields.only(name, *_NOTHING)
    for name in MULTIPLIERS:
        fields.only(name, 1)
    layers, positions = fields.whole("num_hidden_layers"), fields.whole("max_position_embeddings")
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    qkv_bias, output_bias = _attention_biases(fields, family)
    return ModelConfig(
        architecture=family.name,
        vocab_size=fields.whole("vocab_size"),
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        kv_heads=_kv_heads(fields, family, heads),
        head_size=_head_size(fields, family, hidden // heads),
        intermediate_size=fields.whole("intermediate_size"),
        norm_epsilon=fields.number("rms_norm_eps", 1e-6),
        max_positions=positions,
        rope=read_rope(fields, positions),
        is_tied=fields.flag("tie_word_embeddings"),
        windows=tuple(window if window and window < positions else None for window in _windows(fields, family, layers)),
        has_qkv_bias=qkv_bias,
        has_output_bias=output_bias,
        has_mlp_bias=_mlp_bias(fields, family),
        has_qk_norm=family.has_qk_norm,
    )


def _family(fields: Fields) -> Family:
    named = fields.given("architectures")
    if not isinstance(named, list) or len(named) != 1 or named[0] not in ARCHITECTURES:
        raise fields.bad("architectures", f"{named!r} is none of {', '.join(ARCHITECTURES)}")
    return FAMILIES[named[0]]


def _kv_heads(fields: Fields, family: Family, heads: int) -> int:
    kv_heads = fields.whole("num_key_value_heads", family.kv_heads or heads)
    if heads % kv_heads:
        raise fields.bad("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
    return kv_heads


def _head_size(fields: Fields, family: Family, share: int) -> int:
    head_size = fields.whole("head_dim", family.head_size or share)
    if head_size % 16 or head_size > MOST_HEAD_SIZE:
        raise fields.bad("head_dim", f"{head_size} is no multiple of 16 up to {MOST_HEAD_SIZE}")
    return head_size


def _attention_biases(fields: Fields, family: Family) -> tuple[bool, bool]:
    """Return whether queries, keys and values have a bias, and whether attention's output has one."""
    if family.qkv_bias is None:
        has_both = fields.flag("attention_bias")
        return has_both, has_both
    fields.only("attention_bias", family.qkv_bias)
    return family.qkv_bias, False


def _mlp_bias(fields: Fields, family: Family) -> bool:
    if family.has_mlp_bias_field:
        return fields.flag("mlp_bias")
    fields.only("mlp_bias", False)
    return False


def _windows(fields: Fields, family: Family, layers: int) -> list[int | None]:
    if family.windows == "some":
        return _windows_of_some(fields, layers)
    if family.windows == "all":
        width = None if fields.is_null("sliding_window") else fields.whole("sliding_window", DEFAULT_WINDOW)
        fields.only("layer_types", [FULL if width is None else SLIDING] * layers)
        return [width] * layers
    if fields.has("sliding_window"):
        raise fields.bad("sliding_window", f"no layer of {family.name} has a window")
    fields.only("layer_types", [FULL] * layers)
    return [None] * layers


def _windows_of_some(fields: Fields, layers: int) -> list[int | None]:
    """Return the windows of the layers in `layer_types`, or else of those from `max_window_layers` on."""
    width = None
    if fields.flag("use_sliding_window") and not fields.is_null("sliding_window"):
        width = fields.whole("sliding_window", DEFAULT_WINDOW)
    full = fields.given("max_window_layers", DEFAULT_WINDOW_LAYERS)
    if type(full) is not int or full < 0:
        raise fields.bad("max_window_layers", f"{full!r} is no whole number")
    default = [SLIDING if width and number >= full else FULL for number in range(layers)]
    kinds = fields.given("layer_types", default)
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in (SLIDING, FULL) for kind in kinds):
        raise fields.bad("layer_types", f"{kinds!r} names no {layers} layers, each {SLIDING} or {FULL}")
    if SLIDING in kinds and width is None:
        raise fields.bad("layer_types", f"{SLIDING} needs use_sliding_window and sliding_window")
    return [width if kind == SLIDING else None for kind in kinds]
