"""Test whether vLLM's attention computes its format: its layer, cache and kernels against plain torch.

Some vLLM builds accept formats that they do not compute, and return garbage without an error. Imports torch.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine_agent.backends.vllm.formats import VLLM_FORMATS
from engine_agent.engine.errors import EngineFailed

TOKENS = 80  # of the prompt: ends within a block of 32 and of 64
PROBED = TOKENS + 1  # number of tokens written
SEED = 11
# The largest error of attention by computed format, relative to the reference's length. A format is off by its rounding
# (on the CPU build bf16 by 0.2 %, E4M3 by 7 %, E5M2 by 14 %), garbage by about 100 %.
LIMITS = {"fp16": 0.03, "fp32": 0.01} | {name: vllm_format.most_error for name, vllm_format in VLLM_FORMATS.items()}


@dataclass(frozen=True, slots=True)
class Shape:
    heads: int
    kv_heads: int
    head_size: int
    scale: float


def limit_of(kv_format: str) -> float:
    return LIMITS[kv_format]


def check_attention(kv_format: str, error: float) -> None:
    """Raise EngineFailed, with a message for an operator, if the error is too large."""
    limit = limit_of(kv_format)
    if not error <= limit:
        error_size = (
            f"{kv_format}: this vLLM's attention is off by {error:.0%}, and rounding explains {limit:.0%} at most"
        )
        raise EngineFailed(
            "", f"{error_size}: it does not compute the format. Start it with another --kv-dtype, such as bf16"
        )


def attention_error(layer: Any, builder: Any, cache: Tensor, *, block_tokens: int, dtype: torch.dtype) -> float:
    """Return the error for a prompt and one token after it. Overwrites the cache's first blocks, which must be free."""
    impl = layer.impl
    shape = Shape(impl.num_heads, impl.num_kv_heads, impl.head_size, impl.scale)
    device = cache.device
    draw = torch.Generator().manual_seed(SEED)
    query, key, value = (
        torch.randn(PROBED, heads, shape.head_size, generator=draw).to(device=device, dtype=dtype)
        for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
    )
    output = torch.empty_like(query)
    for begin, end in ((0, TOKENS), (TOKENS, PROBED)):
        part = slice(begin, end)
        attention_metadata = _asked(begin, end, block_tokens, device)
        if not layer.attn_backend.forward_includes_kv_cache_update:
            impl.do_kv_cache_update(layer, key[part], value[part], cache, attention_metadata.slot_mapping)
        metadata = builder.build(0, attention_metadata)
        impl.forward(layer, query[part], key[part], value[part], cache, metadata, output=output[part])
    expected = reference(query, key, value, shape.scale)
    relative_error = (output.float() - expected).norm() / expected.norm()
    return float(relative_error) if torch.isfinite(relative_error) else float("inf")


def reference(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Return causal attention in float32; several query heads share one key head."""
    groups = query.shape[1] // key.shape[1]
    keys, values = (tensor.float().repeat_interleave(groups, dim=1) for tensor in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * scale
    tokens = query.shape[0]
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=query.device).triu(1)
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(later, float("-inf")).softmax(-1), values)


def _asked(begin: int, end: int, block_tokens: int, device: torch.device) -> Any:
    """Return vLLM's metadata for one request whose tokens up to `begin` are cached.

    Its blocks are the cache's first after vLLM's null block.
    """
    from vllm.v1.attention.backend import CommonAttentionMetadata

    def whole(*numbers: int) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int32, device=device)

    blocks = -(-PROBED // block_tokens)
    starts = whole(0, end - begin)
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts.cpu(),
        seq_lens=whole(end),
        num_reqs=1,
        num_actual_tokens=end - begin,
        max_query_len=end - begin,
        max_seq_len=end,
        block_table_tensor=whole(*range(1, 1 + blocks))[None],
        slot_mapping=torch.arange(block_tokens + begin, block_tokens + end, dtype=torch.int64, device=device),
        positions=torch.arange(begin, end, dtype=torch.int64, device=device),
    )
