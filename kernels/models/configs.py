"""A model's shape from its Hugging Face config.json. What the config does not tell is refused by its field's name.

Which kind each layer is stands in `kinds.py`, what recurrent layers keep in `states.py`, the count of parameters in
`parameters.py`. A missing field is taken for the default of the model type's own class only where `defaults.py` has it,
and then a note says so.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernels.errors import InvalidArgument
from kernels.models.defaults import DEFAULTS, KNOWN, UNREADABLE, text_type
from kernels.models.fields import Fields
from kernels.models.kinds import Kind, kinds_of
from kernels.models.parameters import parameters_of
from kernels.models.states import state_bytes
from kernels.shapes import (
    MOST_HEADS,
    MOST_KINDS,
    MOST_LAYERS,
    MOST_SIZE,
    MOST_TOKENS,
    Layers,
    ModelShape,
    check_groups,
    refused,
)

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads")
KV_LISTS = ("num_key_value_heads_per_layer", *KV_HEADS)
HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim")
HEAD_SIZE = ("head_dim", "attention_head_dim", "kv_channels")
CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_context_length",
    "seq_length",
    "model_max_length",
)
NESTED = ("text_config", "language_config", "llm_config", "thinker_config")
DEEPEST_NESTING = 3


def read_config(config: object, *, name: str = "config", source: str = "the config") -> ModelShape:
    """Raises InvalidArgument, naming the field, for what is no decoder that can be."""
    fields, outer = _inner(config)
    model_type = text_type(fields.text("model_type") or outer.text("model_type") or "")
    _decoders_only(fields, outer, model_type)
    layers = _layers(fields, model_type)
    shape = ModelShape(
        name=name,
        layers=layers,
        source=source,
        hidden_size=fields.maybe(HIDDEN, most=10**7),
        context_tokens=_context(fields),
        parameters=parameters_of(fields, model_type, layers, is_tied=_is_tied(fields, outer)),
        weights_dtype=_weights_dtype(fields, outer),
    )
    return replace(shape, notes=tuple(dict.fromkeys([*_remarks(fields, model_type, layers), *fields.notes])))


def _inner(config: object) -> tuple[Fields, Fields]:
    """The language model's own object, and the outermost one."""
    if not isinstance(config, dict):
        raise refused("config", config, "an object")
    outer = _fields(config, "config")
    found, path = config, "config"
    for _ in range(DEEPEST_NESTING):
        name = next((one for one in NESTED if isinstance(found.get(one), dict)), None)
        if name is None:
            return _fields(found, path), outer
        found, path = _with_type(found[name], found), f"{path}.{name}"
    raise refused(path, found, f"nested less than {DEEPEST_NESTING} levels deep")


def _with_type(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> dict[str, Any]:
    return {"model_type": outer.get("model_type"), **inner}


def _fields(found: Mapping[str, Any], path: str) -> Fields:
    model_type = found.get("model_type")
    return Fields(found, path, DEFAULTS.get(text_type(model_type)) if isinstance(model_type, str) else None)


def _decoders_only(fields: Fields, outer: Fields, model_type: str) -> None:
    if any(model_type.startswith(one) or model_type.endswith(one) for one in UNREADABLE):
        raise refused(fields.field("model_type"), model_type, "a type whose cache a config tells")
    for one in (outer, fields):
        if one.flag("is_encoder_decoder", default=False):
            raise refused(one.field("is_encoder_decoder"), True, "false: only decoders are counted here")
    if fields.raw("cross_attention_layers"):
        wanted = "empty: what those layers keep belongs to images, not to tokens"
        raise refused(fields.field("cross_attention_layers"), fields.raw("cross_attention_layers"), wanted)


def _layers(fields: Fields, model_type: str) -> tuple[Layers, ...]:
    """Equal layers together, in the order in which each kind first comes."""
    count = fields.wanted(LAYERS, most=MOST_LAYERS)
    kinds = kinds_of(fields, model_type, count)
    state = state_bytes(fields, model_type) if any(one.name == "state" for one in kinds) else None
    attends = any(one.name not in ("state", "none") for one in kinds)
    heads = _query_heads(fields, count) if attends else [0] * count
    keeping = _kv_heads(fields, model_type, heads) if attends else heads
    found: dict[Layers, int] = {}
    for (kind, query, kept), number in Counter(zip(kinds, heads, keeping, strict=True)).items():
        one = _layer(fields, kind, query, kept, state)
        found[one] = found.get(one, 0) + number
        if len(found) > MOST_KINDS:
            raise _too_many(fields)
    return tuple(_times(one, number) for one, number in found.items())


def _too_many(fields: Fields) -> InvalidArgument:
    """Only lists of heads can tell so many layers apart: the one that does so most is named."""
    kept = next((one for one in KV_LISTS if isinstance(fields.raw(one), list)), None)
    lists = [one for one in (kept, fields.name_of(HEADS)) if one is not None and isinstance(fields.raw(one), list)]
    name = max(lists, key=lambda one: len(set(fields.raw(one))), default="block_configs")
    return refused(fields.field(name), fields.raw(name), f"one that leaves at most {MOST_KINDS} kinds of layers")


def _times(one: Layers, count: int) -> Layers:
    return Layers(
        one.kind,
        count,
        one.query_heads,
        one.kv_heads,
        one.key_size,
        one.value_size,
        one.window_tokens,
        one.state_bytes,
    )


def _layer(fields: Fields, kind: Kind, query_heads: int, kv_heads: int, state: int | None) -> Layers:
    if kind.name == "state":
        return Layers("state", 1, state_bytes=state)
    if kind.name in ("shared", "none") or not kv_heads:
        return Layers("none" if not kv_heads else kind.name, 1)
    rank = fields.maybe("kv_lora_rank", most=MOST_SIZE)
    if rank is not None:
        return Layers("latent", 1, query_heads, 1, rank + fields.wanted("qk_rope_head_dim", least=0, most=MOST_SIZE))
    size = _head_size(fields, query_heads)
    value = fields.maybe("v_head_dim", most=MOST_SIZE) or size
    return Layers(kind.name, 1, query_heads, kv_heads, size, value, kind.window_tokens)


def _query_heads(fields: Fields, count: int) -> list[int]:
    name = fields.name_of(HEADS)
    if name is not None and isinstance(fields.raw(name), list):
        return _each(fields, name, count, least=1)
    return [fields.wanted(HEADS)] * count


def _each(fields: Fields, name: str, count: int, *, least: int) -> list[int]:
    fields.items(name, count)
    return fields.wholes(name, least=least, most=MOST_HEADS) or []


def _kv_heads(fields: Fields, model_type: str, heads: list[int]) -> list[int]:
    """Of each layer. 0: it keeps nothing."""
    for name in KV_LISTS:
        if isinstance(fields.raw(name), list):
            return [
                _grouped(f"{fields.field(name)}.{at}", kept, heads[at])
                for at, kept in enumerate(_each(fields, name, len(heads), least=0))
            ]
    if fields.has("block_configs"):
        return _of_blocks(fields, heads)
    name, kept = _one_number(fields, model_type)
    return [_grouped(fields.field(name), one if kept is None else kept, one) for one in heads]


def _grouped(field: str, kv_heads: int, query_heads: int) -> int:
    if kv_heads:
        check_groups(field, kv_heads, query_heads)
    return kv_heads


def _one_number(fields: Fields, model_type: str) -> tuple[str, int | None]:
    """The field that says how many KV heads each layer has, and the number; None: as many as query heads."""
    if model_type == "falcon" and not fields.flag("new_decoder_architecture", default=False):
        return "multi_query", 1 if fields.flag("multi_query", default=True) else None
    if model_type != "falcon" and fields.flag("multi_query", default=model_type == "gpt_bigcode"):
        return "multi_query", 1
    if fields.flag("multi_query_attention", default=False):
        return "multi_query_group_num", fields.wanted("multi_query_group_num")
    inner = fields.inner("attn_config")
    if inner is not None and inner.has("kv_n_heads"):
        return "attn_config.kv_n_heads", inner.wanted("kv_n_heads")
    kept = fields.maybe(KV_HEADS)
    if kept is None:
        fields.notes.append("The config names no KV heads: each query head has its own (MHA).")
    return fields.name_of(KV_HEADS) or KV_HEADS[0], kept


def _of_blocks(fields: Fields, heads: list[int]) -> list[int]:
    """Nemotron's `block_configs`: how many query heads share one KV head in each layer, or that it has no attention."""
    found: list[int] = []
    for at, one in enumerate(fields.items("block_configs", len(heads)) or ()):
        path = f"{fields.field('block_configs')}.{at}"
        if not isinstance(one, dict) or not isinstance(one.get("attention"), dict):
            raise refused(path, one, "an object with an object `attention`")
        inner = Fields(one["attention"], f"{path}.attention")
        if inner.flag("no_op", default=False) or inner.flag("replace_with_linear", default=False):
            found.append(0)
            continue
        shared = inner.wanted("n_heads_in_group")
        if heads[at] % shared:
            raise refused(inner.field("n_heads_in_group"), shared, f"a divisor of {heads[at]:,}, the query heads")
        found.append(heads[at] // shared)
    return found


def _head_size(fields: Fields, query_heads: int) -> int:
    size = fields.maybe(HEAD_SIZE, most=MOST_SIZE)
    if size is not None:
        return size
    hidden = fields.wanted(HIDDEN, most=10**7)
    if hidden % query_heads:
        wanted = f"there, and hidden_size {hidden:,} is no multiple of {query_heads:,} heads"
        raise fields.missing("head_dim", wanted)
    return hidden // query_heads


def _context(fields: Fields) -> int | None:
    """How long a context the model was made for; a number beyond any real one says nothing."""
    name = fields.name_of(CONTEXT[:1]) or next((one for one in CONTEXT if fields.has(one)), None)
    value = None if name is None else fields.raw(name)
    if isinstance(value, int | float) and value > MOST_TOKENS:
        return None
    return None if name is None else fields.wanted(name, most=MOST_TOKENS)


def _is_tied(fields: Fields, outer: Fields) -> bool | None:
    for one in (fields, outer):
        if one.has("tie_word_embeddings"):
            return one.flag("tie_word_embeddings", default=False)
    return None


def _weights_dtype(fields: Fields, outer: Fields) -> str:
    for one in (outer, fields):
        quantised = one.inner("quantization_config")
        if quantised is not None:
            return _quantised(quantised, fields.notes)
    said = next((text for one in (fields, outer) for key in ("dtype", "torch_dtype") if (text := one.text(key))), "")
    return "fp32" if said == "float32" else "bf16"


def _quantised(fields: Fields, notes: list[str]) -> str:
    method = fields.text("quant_method") or ""
    if method in ("fp8", "mxfp4"):
        return method
    bits = fields.maybe("bits", most=64)
    if method in ("awq", "gptq") and bits in (4, 8):
        return f"int{bits}"
    how = repr(method[:40]) if method else "no method"
    notes.append(f"Weights are quantised with {how}, whose size is not known here: counted as BF16.")
    return "bf16"


def _remarks(fields: Fields, model_type: str, layers: tuple[Layers, ...]) -> list[str]:
    remarks = []
    if model_type not in KNOWN:
        remarks.append(f"The model type {model_type[:60]!r} is not known here: read as a plain decoder.")
    if any(one.kind == "state" and one.state_bytes is None for one in layers):
        remarks.append("The config does not tell how large the recurrent layers' states are: they are not counted.")
    if fields.has("index_head_dim"):
        remarks.append("The keys of this model's indexer (index_head_dim) are not counted.")
    return remarks
