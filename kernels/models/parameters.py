"""How many parameters a model of a known family has, counted matrix by matrix; None for families not counted here.

The counts are those of the checkpoint's language model: embeddings, attention, feed-forward or experts, norms, and the
output matrix where it is not the embedding's own.
"""

from kernels.models.fields import Fields
from kernels.shapes import MOST_LAYERS, MOST_PARAMETERS, MOST_SIZE, Layers, Parameters

GATED = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3_text")
OF_EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "kimi_k2", "llama4_text")
LATENT = ("deepseek_v2", "deepseek_v3", "kimi_k2")
TIED = ("gemma", "gemma2", "gemma3_text")  # the class's own default; everybody else's is not
FOUR_NORMS = ("gemma2", "gemma3_text")
HEAD_NORMS = ("qwen3", "qwen3_moe", "gemma3_text")
QKV_BIASES = ("qwen2", "qwen2_moe")
WIDEST = 10**7


def parameters_of(
    fields: Fields, model_type: str, layers: tuple[Layers, ...], *, is_tied: bool | None
) -> Parameters | None:
    """None, too, where the count comes to more than any model has, or layers are not those the family has."""
    if model_type not in (*GATED, *OF_EXPERTS):
        return None
    said = len(fields.notes)
    try:
        return _counted(fields, model_type, layers, is_tied=model_type in TIED if is_tied is None else is_tied)
    except _Unknown:
        del fields.notes[said:]
        return None


class _Unknown(Exception):
    """A field is not there, or not one number, that the count needs and the cache's size does not."""


def _counted(fields: Fields, model_type: str, layers: tuple[Layers, ...], *, is_tied: bool) -> Parameters:
    hidden, count = _size(fields, "hidden_size"), _size(fields, "num_hidden_layers")
    vocabulary = _size(fields, "vocab_size") * hidden
    attention = sum(one.count * _attention(fields, model_type, one) for one in layers)
    norms = (4 if model_type in FOUR_NORMS else 2) * hidden
    total = vocabulary * (1 if is_tied else 2) + hidden + attention + count * norms
    if model_type in GATED:
        total += count * (3 * hidden * _size(fields, "intermediate_size"))
        return _computed(total, total)
    return _with_experts(fields, model_type, total)


def _computed(total: int, active: int, experts: int = 0, per_token: int = 0) -> Parameters:
    if total > MOST_PARAMETERS:
        raise _Unknown
    return Parameters(total, active, "computed", experts, per_token)


def _attention(fields: Fields, model_type: str, layers: Layers) -> int:
    """Of one layer of these."""
    if not layers.keeps_tokens or (layers.kind == "latent") is not (model_type in LATENT):
        raise _Unknown
    if layers.kind == "latent":
        return _latent(fields)
    hidden, heads, kept = _size(fields, "hidden_size"), layers.query_heads, layers.kv_heads
    key, value = layers.key_size, layers.value_size
    matrices = hidden * (heads + kept) * (key + value)
    biases = heads * key + kept * (key + value) if model_type in QKV_BIASES or _biased(fields, model_type) else 0
    biases += hidden if _biased(fields, model_type) else 0
    return matrices + biases + (2 * key if model_type in HEAD_NORMS else 0)


def _biased(fields: Fields, model_type: str) -> bool:
    return model_type not in QKV_BIASES and fields.flag("attention_bias", default=False)


def _latent(fields: Fields) -> int:
    """Keys and values go through one narrow vector, queries too where there is a rank for them."""
    hidden, heads = _size(fields, "hidden_size"), _size(fields, "num_attention_heads")
    rank, rotary = _size(fields, "kv_lora_rank"), _size(fields, "qk_rope_head_dim")
    plain, value = _size(fields, "qk_nope_head_dim"), _size(fields, "v_head_dim")
    narrow = fields.maybe("q_lora_rank", most=MOST_SIZE)
    queries = heads * (plain + rotary)
    asking = hidden * queries if narrow is None else hidden * narrow + narrow + narrow * queries
    keeping = hidden * (rank + rotary) + rank + rank * heads * (plain + value)
    return asking + keeping + heads * value * hidden


def _with_experts(fields: Fields, model_type: str, rest: int) -> Parameters:
    hidden = _size(fields, "hidden_size")
    experts = _size(fields, "num_local_experts", "num_experts", "n_routed_experts")
    chosen = _size(fields, "num_experts_per_tok")
    expert = 3 * hidden * _expert_width(fields, model_type)
    sparse = _sparse_layers(fields, model_type)
    dense = _size(fields, "num_hidden_layers") - sparse
    shared = _shared_width(fields, model_type)
    rest += sparse * (experts * hidden + 3 * hidden * shared)
    rest += sparse * hidden if model_type == "qwen2_moe" else 0  # the shared expert's own gate
    rest += sparse * experts if fields.raw("topk_method") == "noaux_tc" else 0  # a bias for each expert
    rest += dense * 3 * hidden * _size(fields, *_dense_names(model_type)) if dense else 0
    total, active = rest + sparse * experts * expert, rest + sparse * min(chosen, experts) * expert
    return _computed(total, active, experts, min(chosen, experts))


def _expert_width(fields: Fields, model_type: str) -> int:
    return _size(fields, "intermediate_size" if model_type in ("mixtral", "llama4_text") else "moe_intermediate_size")


def _dense_names(model_type: str) -> tuple[str, ...]:
    return ("intermediate_size_mlp",) if model_type == "llama4_text" else ("intermediate_size",)


def _shared_width(fields: Fields, model_type: str) -> int:
    if model_type == "qwen2_moe":
        return _size(fields, "shared_expert_intermediate_size")
    if model_type == "llama4_text":
        return _size(fields, "intermediate_size")
    if model_type in LATENT:
        return (fields.maybe("n_shared_experts", least=0) or 0) * _size(fields, "moe_intermediate_size")
    return 0


def _sparse_layers(fields: Fields, model_type: str) -> int:
    """How many layers choose from experts."""
    layers = range(_size(fields, "num_hidden_layers"))
    if model_type in LATENT:
        first, step = fields.maybe("first_k_dense_replace", least=0) or 0, fields.maybe("moe_layer_freq") or 1
        return sum(at >= first and at % step == 0 for at in layers)
    if model_type in ("qwen2_moe", "qwen3_moe"):
        dense = set(fields.wholes("mlp_only_layers", least=0, most=MOST_LAYERS) or ())
        step = fields.maybe("decoder_sparse_step") or 1
        return sum(at not in dense and (at + 1) % step == 0 for at in layers)
    step = fields.maybe("interleave_moe_layer_step") or 1
    return sum((at + 1) % step == 0 for at in layers)


def _size(fields: Fields, *names: str) -> int:
    if any(isinstance(fields.raw(name), list) for name in names):
        raise _Unknown
    value = fields.maybe(names, most=WIDEST)
    if value is None:
        raise _Unknown
    return value
