"""`python -m tests.vllm.inside.attending FORMAT…`: one attention layer of vLLM's with a cache of each of these formats,
and how far it is off. A process of its own: what vLLM takes and does not compute may write beyond its cache."""

import json
import sys
import time

import torch
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention import Attention
from vllm.v1.kv_cache_interface import compute_layer_kv_cache_shape_bytes

from engine_agent.backends.vllm.self_test import attention_error
from tests.vllm.inside.scheduling import DEMO

BLOCK, BLOCKS, HEADS, KV_HEADS, HEAD_SIZE = 32, 8, 8, 2, 64
ROOM = 8  # times the cache's own memory: what is written beyond it does not end the process


def told(kv_cache_dtype: str) -> tuple[float, float]:
    """How far it is off, and in how many seconds that was found."""
    arguments = EngineArgs(model=str(DEMO), max_model_len=512, block_size=BLOCK, kv_cache_dtype=kv_cache_dtype)
    config = arguments.create_engine_config()
    dtype = config.model_config.dtype
    torch.set_default_dtype(dtype)
    with set_current_vllm_config(config):
        layer = Attention(
            HEADS, HEAD_SIZE, HEAD_SIZE**-0.5, KV_HEADS, cache_config=config.cache_config, prefix="model.layers.0.attn"
        )
        spec = layer.get_kv_cache_spec(config)
        builder = layer.attn_backend.get_builder_cls()(spec, [layer.layer_name], config, torch.device("cpu"))
        shape = compute_layer_kv_cache_shape_bytes(spec, BLOCKS)
        size = torch.Size(shape).numel()
        cache = torch.zeros(ROOM * size, dtype=torch.int8)[:size].view(shape).view(spec.dtype)
        began = time.perf_counter()
        error = attention_error(layer, builder, cache, block_tokens=BLOCK, dtype=dtype)
        return error, time.perf_counter() - began


if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            print(json.dumps({name: told(name)}), flush=True)
        except NotImplementedError as refusal:  # vLLM's own, of a processor that lacks what its kernels need
            print(json.dumps({name: str(refusal)}), flush=True)
