"""The forward pass through pages, against `transformers` and against itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_agent.engine.config import read_config
from engine_agent.engine.dtypes import BadDtype, cpu_has_bfloat16, serving_dtype
from engine_agent.engine.model import Model, load_model, silu
from engine_agent.engine.weights import model_revision
from engine_agent.tools.quality.reading import Pages, Row, read_densely, reader
from kernels.formats import KV_FORMATS
from kernels.layout import PageLayout
from tests.unit.engine.making import MISTRAL, QWEN2, QWEN3, make_folder

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
SOME_WINDOWS = {"use_sliding_window": True, "sliding_window": 24, "num_hidden_layers": 3}
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]

MODELS: dict[str, dict[str, Any]] = {
    "llama, grouped, tied": {},
    "llama, one key head, untied": {"num_key_value_heads": 1, "tie_word_embeddings": False},
    "llama, a key head for each": {"num_key_value_heads": 4, "head_dim": 16},
    "llama, heads wider than hidden": {"head_dim": 48},
    "llama, biases": {"attention_bias": True, "mlp_bias": True},
    "llama3": {"rope_scaling": LLAMA3},
    "linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    "newer spelling": {"rope_theta": ..., "rope_parameters": {"rope_theta": 500_000.0, **LLAMA3}},
    "yarn": {"rope_scaling": YARN},
    "yarn, untruncated": {"rope_scaling": YARN | {"truncate": False, "beta_fast": 8, "beta_slow": 2}},
    "yarn, its attention factor": {"rope_scaling": YARN | {"attention_factor": 0.8}},
    "yarn, its mscale": {"rope_scaling": YARN | {"mscale": 1.5, "mscale_all_dim": 0.5}},
    "yarn, original positions outside": {
        "rope_scaling": {"type": "yarn", "factor": 4.0},
        "original_max_position_embeddings": 128,
    },
    "mistral, every layer has a window": MISTRAL | {"sliding_window": 24},
    "mistral, no window, untied": MISTRAL | {"sliding_window": None, "tie_word_embeddings": False, "head_dim": ...},
    "qwen2": QWEN2,
    "qwen2, the upper layers have windows": QWEN2 | SOME_WINDOWS | {"max_window_layers": 1},
    "qwen2, windows that are not used": QWEN2 | SOME_WINDOWS | {"use_sliding_window": False},
    "qwen3, grouped": QWEN3,
    "qwen3, biases, yarn, untied": QWEN3
    | {"attention_bias": True, "rope_scaling": YARN, "tie_word_embeddings": False, "num_key_value_heads": 1},
    "qwen3, named layers have windows": QWEN3 | SOME_WINDOWS | {"layer_types": KINDS},
}


def documents(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(1, 96, shape, generator=torch.Generator().manual_seed(seed))


def read(model: Model, tokens: Tensor, *, kv_format: str = "fp32", decoded_tokens: int = 7) -> Tensor:
    """Logits after each token, through pages: prompts at once, then the last tokens one at a time."""
    config = model.config
    layout = PageLayout(KV_FORMATS[kv_format], config.layers, config.kv_heads, config.head_size)
    return reader(model, layout).read(tokens, decoded_tokens=decoded_tokens)


def theirs(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize("changed", MODELS.values(), ids=MODELS)
def test_logits_through_pages_are_those_of_transformers(changed: dict[str, Any], tmp_path: Path) -> None:
    folder = make_folder(tmp_path, **changed)
    tokens = documents(2, 90)
    with torch.inference_mode():
        wanted = theirs(folder)(tokens, use_cache=False).logits
    found = read(load_model(folder), tokens)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    assert torch.equal(found.argmax(-1), wanted.argmax(-1))


@pytest.mark.parametrize(
    "name", ["llama3", "mistral, every layer has a window", "qwen2", "qwen3, named layers have windows"]
)
def test_greedy_answers_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, **MODELS[name])
    model, tokens = load_model(folder), documents(1, 40)
    wanted = theirs(folder).generate(tokens, max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0)
    for _ in range(24):
        logits = read(model, tokens, decoded_tokens=1)
        tokens = torch.cat((tokens, logits[:, -1:].argmax(-1)), dim=1)
    assert torch.equal(tokens, wanted)


def test_a_window_is_seen_in_the_logits(tmp_path: Path) -> None:
    narrow = load_model(make_folder(tmp_path / "narrow", **MISTRAL, sliding_window=8))
    wide = load_model(make_folder(tmp_path / "wide", **MISTRAL, sliding_window=None))
    tokens = documents(1, 40)
    one, other = read(narrow, tokens), read(wide, tokens)
    torch.testing.assert_close(one[:, :8], other[:, :8], atol=1e-4, rtol=1e-4)
    assert (one[:, 12:] - other[:, 12:]).abs().max() > 0.1


@pytest.mark.parametrize("changed", [{}, MISTRAL | {"sliding_window": 16}, QWEN3], ids=["llama", "windows", "norms"])
def test_the_dense_pass_is_the_same_function(changed: dict[str, Any], tmp_path: Path) -> None:
    model, tokens = load_model(make_folder(tmp_path, **changed)), documents(3, 50)
    torch.testing.assert_close(read_densely(model, tokens), read(model, tokens), atol=1e-4, rtol=1e-4)


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
    tokens = documents(1, 40)
    found, wanted = (read(one, tokens, kv_format="bf16").log_softmax(-1) for one in (model, exact))
    assert found.dtype == torch.float32
    assert (found.exp() - wanted.exp()).abs().max() < 0.05


@pytest.mark.parametrize("inner", [64, 80, 704])
def test_a_silus_bits_do_not_depend_on_where_they_lie(inner: int) -> None:
    """What a prefix hit stands on. Of torch's own function it does not hold."""
    whole = torch.randn(130, inner, generator=torch.Generator().manual_seed(inner))
    for rows in (1, 2, 3, 5, 16, 17, 48, 64, 129):
        assert torch.equal(silu(whole[:rows]), silu(whole)[:rows]), rows
    torch.testing.assert_close(silu(whole), torch.nn.functional.silu(whole))
    assert silu(torch.tensor([-1e4, 1e4])).tolist() == [0.0, 1e4]


class Watching:
    """Attention that mixes nothing, and remembers what it was handed."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        self.seen += [queries.clone(), keys.clone(), values.clone()]
        return queries


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", [{}, MISTRAL, QWEN2, QWEN3], ids=["llama", "mistral", "qwen2", "qwen3"])
def test_a_tokens_bits_do_not_depend_on_the_tokens_beside_it(
    family: dict[str, Any], dtype: torch.dtype, tmp_path: Path
) -> None:
    model = load_model(make_folder(tmp_path, **family), dtype=dtype)
    tokens = documents(130)
    whole, hidden = seen_by(model, tokens)
    for rows in (1, 2, 3, 4, 5, 7, 16, 17, 33, 64, 129):
        part, outcome = seen_by(model, tokens[:rows])
        assert torch.equal(outcome, hidden[:rows]), rows
        for mine, all_of_them in zip(part, whole, strict=True):
            assert torch.equal(mine, all_of_them[:rows]), rows


def seen_by(model: Model, tokens: Tensor) -> tuple[list[Tensor], Tensor]:
    watching = Watching()
    return watching.seen, model.logits(model.hidden(tokens, watching))


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


@pytest.mark.parametrize(
    "family", [{}, QWEN2, QWEN3 | {"tie_word_embeddings": False}], ids=["tied", "biases", "untied"]
)
def test_a_loaded_model_knows_who_it_is(family: dict[str, Any], tmp_path: Path) -> None:
    folder = make_folder(tmp_path, shards=3, **family)
    assert load_model(folder).revision == load_model(folder, dtype=torch.bfloat16).revision == model_revision(folder)


def test_an_embedding_too_large_to_be_kept_twice_is_a_head_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, tokens = make_folder(tmp_path), documents(1, 20)
    packed = read(load_model(folder), tokens)
    monkeypatch.setattr("engine_agent.engine.model.MOST_COPIED_HEAD", 0)
    torch.testing.assert_close(read(load_model(folder), tokens), packed)


def test_a_model_is_served_in_what_was_asked_for_or_fits(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    config = read_config(folder)
    assert serving_dtype(folder, config) is torch.float32
    assert serving_dtype(folder, config, asked="bf16") is torch.bfloat16
    assert serving_dtype(folder, config, device="cuda") is torch.bfloat16
    with pytest.raises(BadDtype, match="'int3' is none of auto"):
        serving_dtype(folder, config, asked="int3")


def test_weights_of_16_bits_are_served_so_where_the_cpu_computes_in_them() -> None:
    demo = Path("engine_agent/demo/model")
    wanted = torch.bfloat16 if cpu_has_bfloat16() else torch.float32
    assert serving_dtype(demo, read_config(demo)) is wanted
