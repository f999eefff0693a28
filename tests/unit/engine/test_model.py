"""The forward pass through pages, against `transformers` and against itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_agent.engine.model import ROWS, linear, load_model, silu
from engine_agent.engine.paged import Row
from engine_agent.quality.reading import Pages, read_densely, reader
from kernels.layout import KV_FORMATS, PageLayout
from tests.unit.engine.making import make_folder

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS: dict[str, dict[str, Any]] = {
    "grouped, tied": {},
    "one key head, untied": {"num_key_value_heads": 1, "tie_word_embeddings": False},
    "a key head for each": {"num_key_value_heads": 4, "head_dim": 16},
    "heads wider than hidden": {"num_attention_heads": 4, "head_dim": 48, "num_key_value_heads": 2},
    "llama3": {"rope_scaling": LLAMA3},
    "linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    "newer spelling": {"rope_theta": ..., "rope_parameters": {"rope_theta": 500_000.0, **LLAMA3}},
}


def documents(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(1, 96, shape, generator=torch.Generator().manual_seed(seed))


def theirs(folder: Path, tokens: Tensor) -> Tensor:
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits: Tensor = model(tokens, use_cache=False).logits
    return logits


@pytest.mark.parametrize("changed", MODELS.values(), ids=MODELS)
def test_logits_through_pages_are_those_of_transformers(changed: dict[str, Any], tmp_path: Path) -> None:
    folder = make_folder(tmp_path, **changed)
    model, tokens = load_model(folder), documents(2, 90)
    config = model.config
    layout = PageLayout(KV_FORMATS["fp32"], config.layers, config.kv_heads, config.head_size)
    ours = reader(model, layout).read(tokens, decoded_tokens=7)
    torch.testing.assert_close(ours, theirs(folder, tokens), atol=1e-4, rtol=1e-4)


def test_the_dense_pass_is_the_same_function(tmp_path: Path) -> None:
    model, tokens = load_model(make_folder(tmp_path)), documents(3, 50)
    layout = PageLayout(KV_FORMATS["fp32"], 2, 2, 32)
    paged = reader(model, layout).read(tokens, decoded_tokens=5)
    torch.testing.assert_close(read_densely(model, tokens), paged, atol=1e-4, rtol=1e-4)


def test_sequences_in_one_batch_do_not_meet(tmp_path: Path) -> None:
    model = load_model(make_folder(tmp_path))
    some = reader(model, PageLayout(KV_FORMATS["int8"], 2, 2, 32))
    tokens = documents(4, 40)
    together = some.read(tokens, decoded_tokens=4)
    for number, alone in enumerate(tokens):
        torch.testing.assert_close(some.read(alone[None], decoded_tokens=4)[0], together[number], atol=2e-3, rtol=2e-3)


def test_half_the_precision_is_close(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    model, exact = load_model(folder, dtype=torch.bfloat16), load_model(folder)
    layout = PageLayout(KV_FORMATS["bf16"], 2, 2, 32)
    tokens = documents(1, 40)
    found, wanted = (reader(one, layout).read(tokens, decoded_tokens=4).log_softmax(-1) for one in (model, exact))
    assert found.dtype == torch.float32
    assert (found.exp() - wanted.exp()).abs().max() < 0.05


@pytest.mark.parametrize("inner", [64, 80, 704])
def test_a_rows_bits_do_not_depend_on_how_many_rows_there_are(inner: int) -> None:
    """What a prefix hit stands on. Of torch's own functions it does not hold."""
    chance = torch.Generator().manual_seed(inner)
    x, weight = torch.randn(130, 64, generator=chance), torch.randn(inner, 64, generator=chance)
    whole = linear(x, weight)
    for rows in (1, 2, 3, 5, 16, 17, 48, 64, 129):
        assert torch.equal(linear(x[:rows], weight), whole[:rows]), rows
        assert torch.equal(silu(whole[:rows]), silu(whole)[:rows]), rows
    torch.testing.assert_close(silu(whole), torch.nn.functional.silu(whole))
    assert silu(torch.tensor([-1e4, 1e4])).tolist() == [0.0, 1e4]
    assert len(linear(x[:1], weight)) == 1 < ROWS


def test_chunks_that_end_at_tiles_write_the_same_bytes(tmp_path: Path) -> None:
    model, tokens = load_model(make_folder(tmp_path)), documents(192)
    layout = PageLayout(KV_FORMATS["int8"], 2, 2, 32)
    one = reader(model, layout)
    pages = Pages(layout, 2, len(tokens), tokens.device)
    one.step(pages.arena, [Row(pages.of(0), 0, 192)], tokens)
    for begin, end in ((0, 64), (64, 128), (128, 192)):
        one.step(pages.arena, [Row(pages.of(1), begin, end)], tokens[begin:end])
    first, second = pages.arena.chunk(2)
    assert torch.equal(first, second)
