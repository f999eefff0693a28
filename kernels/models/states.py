"""What a recurrent layer keeps of each request, however long: a state in FP32, a tail of its convolution in BF16."""

from kernels.models.fields import Fields
from kernels.shapes import MOST_SIZE

STATE_BYTES, TAIL_BYTES = 4, 2


def state_bytes(fields: Fields, model_type: str) -> int | None:
    """Of one layer; None where the config does not tell."""
    if fields.has("linear_num_value_heads"):
        return _delta(fields)
    if fields.has("mamba_n_heads"):
        return _mamba2(fields, "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
    if fields.has("mamba_num_heads"):
        return _mamba2(fields, "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
    if model_type == "mamba2":
        return _mamba2(fields, "num_heads", "head_dim", "n_groups", "state_size", "conv_kernel")
    if fields.has("mamba_d_state"):
        inner = fields.wanted("mamba_expand", most=64) * _hidden(fields)
        return _mamba(inner, _size(fields, "mamba_d_state"), _size(fields, "mamba_d_conv"))
    if model_type == "mamba":
        return _mamba(_size(fields, "intermediate_size"), _size(fields, "state_size"), _size(fields, "conv_kernel"))
    if fields.has("conv_L_cache"):
        return _hidden(fields) * (_size(fields, "conv_L_cache") - 1) * TAIL_BYTES
    return None


def _mamba(inner: int, state: int, kernel: int) -> int:
    return inner * state * STATE_BYTES + inner * (kernel - 1) * TAIL_BYTES


def _mamba2(fields: Fields, heads: str, size: str, groups: str, state: str, kernel: str) -> int:
    inner = _size(fields, heads) * _size(fields, size)
    width = _size(fields, state)
    tail = (inner + 2 * _size(fields, groups) * width) * (_size(fields, kernel) - 1)
    return inner * width * STATE_BYTES + tail * TAIL_BYTES


def _delta(fields: Fields) -> int:
    """Gated delta rule (Qwen3-Next): a matrix for each value head, keys and values in the convolution."""
    values, keys = _size(fields, "linear_num_value_heads"), _size(fields, "linear_num_key_heads")
    value_size, key_size = _size(fields, "linear_value_head_dim"), _size(fields, "linear_key_head_dim")
    tail = (2 * keys * key_size + values * value_size) * (_size(fields, "linear_conv_kernel_dim") - 1)
    return values * key_size * value_size * STATE_BYTES + tail * TAIL_BYTES


def _size(fields: Fields, name: str) -> int:
    return fields.wanted(name, most=MOST_SIZE)


def _hidden(fields: Fields) -> int:
    return fields.wanted(("hidden_size", "n_embd", "d_model"), most=10**7)
