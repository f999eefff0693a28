"""Which kind each layer of a model is: it keeps every token, a window, a chunk, a state, or reads another's."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.models.fields import Fields
from kernels.shapes import MOST_LAYERS, MOST_TOKENS, LayerKind, refused

# Words of `layer_types` and its older names.
WORDS: dict[str, LayerKind] = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "sliding_attention": "window",
    "sliding_window": "window",
    "local_attention": "window",
    "chunked_attention": "chunked",
    "linear_attention": "state",
    "mamba": "state",
    "mamba2": "state",
    "conv": "state",
    "mlp": "none",
    "moe": "none",
}
ALL_WINDOWS = ("mistral", "mixtral", "phi3", "phimoe", "starcoder2")  # with `sliding_window`, every layer has it
SINCE_A_LAYER = ("qwen2", "qwen2_moe", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3", "qwen3_moe")
SWITCHED = (*SINCE_A_LAYER, "smollm3")  # windows only where `use_sliding_window` says so
STATES_ONLY = ("mamba", "mamba2", "rwkv")
PATTERNS = {"cohere2": 4, "exaone4": 4, "gemma3_text": 6, "gemma3n_text": 5, "olmo3": 4}  # every so manieth: all tokens
# Of these only the field tells which layers attend; without it their classes would have all do, or none.
TOLD = {
    "bamba": "attn_layer_indices",
    "granitemoehybrid": "layer_types",
    "lfm2": "layer_types",
    "nemotron_h": "layer_types",
}
ALTERNATING = ("gemma2", "gpt_oss")
WINDOW = ("sliding_window", "sliding_window_size")


@dataclass(frozen=True, slots=True)
class Kind:
    name: LayerKind
    window_tokens: int | None = None


def kinds_of(fields: Fields, model_type: str, count: int) -> list[Kind]:
    """Of each layer, the first one first."""
    names = _named(fields, count) or _of_type(fields, model_type, count)
    return [_measured(fields, one) for one in _shared(fields, names)]


def _measured(fields: Fields, name: LayerKind) -> Kind:
    if name == "window":
        return Kind("window", fields.wanted(WINDOW, most=MOST_TOKENS))
    if name == "chunked":
        return Kind("chunked", fields.wanted("attention_chunk_size", most=MOST_TOKENS))
    return Kind(name)


def _named(fields: Fields, count: int) -> list[LayerKind] | None:
    """Where the config says it layer by layer."""
    for key in ("layer_types", "layers_block_type"):
        words = fields.items(key, count)
        if words is not None:
            return [_word(f"{fields.field(key)}.{at}", word) for at, word in enumerate(words)]
    letters = fields.items("hybrid_override_pattern", count)
    if letters is not None:
        known: dict[str, LayerKind] = {"M": "state", "*": "full", "-": "none", "E": "none"}
        return [_letter(fields.field("hybrid_override_pattern"), one, known) for one in letters]
    numbers = fields.items("attn_type_list", count)
    if numbers is not None:
        of_number: dict[int, LayerKind] = {0: "state", 1: "full"}
        return [_letter(f"{fields.field('attn_type_list')}.{at}", one, of_number) for at, one in enumerate(numbers)]
    return None


def _word(field: str, word: object) -> LayerKind:
    if not isinstance(word, str) or word not in WORDS:
        raise refused(field, word, f"one of {', '.join(WORDS)}")
    return WORDS[word]


def _letter(field: str, one: object, known: "dict[str, LayerKind] | dict[int, LayerKind]") -> LayerKind:
    found = next((kind for letter, kind in known.items() if type(letter) is type(one) and letter == one), None)
    if found is None:
        raise refused(field, one, f"made of {', '.join(map(str, known))}")
    return found


def _of_type(fields: Fields, model_type: str, count: int) -> Sequence[LayerKind]:
    """By the rule of the model type, as its own code has it."""
    places = range(count)
    if model_type in STATES_ONLY:
        return ["state"] * count
    if model_type == "llama4_text":
        return _without_rope(fields, count)
    if model_type == "jamba" or fields.has("attn_layer_period"):
        period = fields.wanted("attn_layer_period", most=MOST_LAYERS)
        offset = fields.wanted("attn_layer_offset", least=0, most=MOST_LAYERS)
        return ["full" if at % period == offset else "state" for at in places]
    if listed := fields.name_of(("attn_layer_indices", "full_attn_idxs")):
        attending = set(fields.wholes(listed, least=0, most=count - 1) or ())
        return ["full" if at in attending else "state" for at in places]
    if model_type == "qwen3_next":
        interval = fields.wanted("full_attention_interval", most=MOST_LAYERS)
        return ["state" if (at + 1) % interval else "full" for at in places]
    if model_type in TOLD:
        raise fields.missing(TOLD[model_type], "there: nothing tells which layers attend")
    return _windows(fields, model_type, count)


def _windows(fields: Fields, model_type: str, count: int) -> Sequence[LayerKind]:
    places = range(count)
    if not _has_window(fields, model_type):
        return ["full"] * count
    if model_type in ALTERNATING:
        return ["full" if at % 2 else "window" for at in places]
    pattern = _pattern(fields, model_type)
    if pattern is not None:
        return [pattern[at % len(pattern)] for at in places]
    if model_type in SINCE_A_LAYER:
        first = fields.wanted("max_window_layers", least=0, most=MOST_LAYERS)
        return ["full" if at < first else "window" for at in places]
    if model_type in ALL_WINDOWS:
        return ["window"] * count
    raise fields.missing("layer_types", "there, though there is a sliding_window: nothing tells which layers have it")


def _has_window(fields: Fields, model_type: str) -> bool:
    """Whether any layer has one. A window that is null is none, whatever the model type's rule."""
    if model_type in SWITCHED and not fields.has("use_sliding_window") and fields.name_of(WINDOW) is None:
        return False
    is_used = fields.flag("use_sliding_window", default=model_type not in SWITCHED)
    return is_used and fields.maybe(WINDOW, most=MOST_TOKENS) is not None


def _pattern(fields: Fields, model_type: str) -> list[LayerKind] | None:
    """`LLLG`, or a number: every so manieth layer keeps all tokens."""
    name = fields.name_of(("sliding_window_pattern", "_sliding_window_pattern"))
    if name is not None and isinstance(fields.raw(name), str):
        known: dict[str, LayerKind] = {"L": "window", "G": "full"}
        if not fields.raw(name):
            raise refused(fields.field(name), "", "made of L, G")
        return [_letter(fields.field(name), one, known) for one in fields.raw(name)[:MOST_LAYERS]]
    period = PATTERNS.get(model_type) if name is None else fields.wanted(name, most=MOST_LAYERS)
    if name is None and period:
        fields.notes.append(f"sliding_window_pattern is not in the config: {period}, the model type's own, is used.")
    if period is None:
        return None
    windows: list[LayerKind] = ["window"] * (period - 1)
    return [*windows, "full"]


def _without_rope(fields: Fields, count: int) -> Sequence[LayerKind]:
    """Llama 4: layers without rotary positions see everything, the others their chunk."""
    if "attention_chunk_size" in fields and not fields.has("attention_chunk_size"):
        return ["full"] * count  # null: no chunks at all
    if fields.raw("no_rope_layers"):
        fields.items("no_rope_layers", count)
        rotary = fields.wholes("no_rope_layers", least=0, most=1) or []
        return ["chunked" if one else "full" for one in rotary]
    interval = fields.wanted("no_rope_layer_interval", most=MOST_LAYERS)
    return ["chunked" if (at + 1) % interval else "full" for at in range(count)]


def _shared(fields: Fields, names: Sequence[LayerKind]) -> list[LayerKind]:
    """Layers that read what an earlier one keeps: the last ones (Gemma 3n), or all but every so manieth (CLA, MLKV)."""
    count = len(names)
    owners = set(range(count))
    last = fields.maybe("num_kv_shared_layers", least=0, most=MOST_LAYERS)
    if last:
        if last >= count:
            raise refused(fields.field("num_kv_shared_layers"), last, f"less than {count:,}, all layers")
        owners = set(range(count - last))
    if fields.flag("use_cla", default=fields.has("cla_share_factor")):
        owners &= set(range(0, count, fields.wanted("cla_share_factor", most=MOST_LAYERS)))
    if fields.has("num_key_value_layers"):
        kept = fields.wanted("num_key_value_layers", most=count)
        if count % kept:
            raise refused(fields.field("num_key_value_layers"), kept, f"a divisor of {count:,}, all layers")
        owners &= set(range(0, count, count // kept))
    return [name if at in owners or name in ("state", "none") else "shared" for at, name in enumerate(names)]
