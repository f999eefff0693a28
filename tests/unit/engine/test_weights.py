"""Tensors of a folder, and the revision that names them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine_agent.engine.config import read_config
from engine_agent.engine.errors import BadModel
from engine_agent.engine.model import load_model
from engine_agent.engine.weights import HEAD, INDEX, SINGLE, model_revision, stored_dtype, tensors
from tests.unit.engine.making import MISTRAL, QWEN3, make_config, make_folder, make_weights, save_weights

DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "model")


def test_shards_and_their_names_change_nothing(folder: Path, tmp_path: Path) -> None:
    config, weights = read_config(folder), load_file(folder / SINGLE)
    revision = model_revision(folder)
    for shards, stem in ((2, "model"), (5, "other")):
        sharded = tmp_path / stem
        make_config(sharded)
        save_weights(sharded, weights, shards=shards, stem=stem)
        assert model_revision(sharded) == revision
        again = dict(tensors(sharded, config))
        assert again.keys() == weights.keys()
        assert all(torch.equal(again[name], tensor) for name, tensor in weights.items())


def test_what_no_model_computes_with_is_no_part_of_a_revision(folder: Path) -> None:
    revision = model_revision(folder)
    make_config(folder, transformers_version="9", torch_dtype="bfloat16", bos_token_id=3)
    (folder / "tokenizer.json").unlink()
    (folder / "quality.json").write_text("{}")
    save_file({"key_amax": torch.ones(2, 2)}, folder / "kv_scales.safetensors")
    weights = load_file(folder / SINGLE)
    tied = weights | {HEAD: torch.zeros(96, 64), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(16)}
    save_file(tied, folder / SINGLE)
    assert model_revision(folder) == revision


def test_everything_a_model_computes_with_is(folder: Path) -> None:
    weights = load_file(folder / SINGLE)
    revisions = [model_revision(folder)]
    make_config(folder, rope_scaling={"rope_type": "linear", "factor": 2.0})
    revisions.append(model_revision(folder))
    make_config(folder, rms_norm_eps=1e-6)
    revisions.append(model_revision(folder))
    make_config(folder)
    weights[DOWN].view(torch.int32)[0, 0] ^= 1
    save_file(weights, folder / SINGLE)
    revisions.append(model_revision(folder))
    weights[DOWN] = weights[DOWN].half()
    save_file(weights, folder / SINGLE)
    revisions.append(model_revision(folder))
    assert len(set(revisions)) == len(revisions)
    assert all(len(revision) == 64 for revision in revisions)


@pytest.mark.parametrize(
    "changed",
    [
        {"rope_scaling": {"type": "yarn", "factor": 2.0}},
        {"rope_scaling": {"type": "yarn", "factor": 2.0, "beta_fast": 16}},
        {"sliding_window": 64},
    ],
    ids=str,
)
def test_what_changes_only_the_computing_changes_the_revision(
    changed: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    weights = load_file(folder / SINGLE)
    revisions = []
    for name, fields in (("plain", {"sliding_window": None}), ("changed", {"sliding_window": None} | changed)):
        make_config(tmp_path / name, **(MISTRAL | fields))
        save_weights(tmp_path / name, weights)
        revisions.append(model_revision(tmp_path / name))
    assert revisions[0] != revisions[1]


def test_the_demo_models_revision_is_what_it_was() -> None:
    """Its quality was measured under this name; see quality-torch-cpu.json."""
    demo = Path("engine_agent/demo/model")
    measured = json.loads((demo / "quality-torch-cpu.json").read_text(encoding="utf-8"))
    assert model_revision(demo) == measured["model_revision"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_weight_that_is_no_number_is_named(bad: float, dtype: torch.dtype, folder: Path) -> None:
    weights = {name: tensor.to(dtype) for name, tensor in load_file(folder / SINGLE).items()}
    weights[DOWN][5, 7] = bad
    save_file(weights, folder / SINGLE)
    with pytest.raises(BadModel, match=rf"model\.safetensors: {DOWN}: holds NaN or an infinity"):
        load_model(folder)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, shards=3)
    (folder / "part-1.safetensors").unlink()
    with pytest.raises(BadModel, match=rf"part-1\.safetensors: is missing: {INDEX} lists it"):
        load_model(folder)


def test_a_shard_that_was_cut_short_is_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, shards=3)
    shard = folder / "part-2.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(BadModel, match=r"part-2\.safetensors: is no safetensors file"):
        load_model(folder)


def test_every_familys_tensors_are_its_own(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, **QWEN3)
    make_config(folder, **MISTRAL)
    with pytest.raises(BadModel, match=r"k_norm\.weight: is no tensor of MistralForCausalLM, nor 3 others"):
        load_model(folder)


def test_how_weights_are_stored_is_read_from_them(folder: Path) -> None:
    config = read_config(folder)
    assert stored_dtype(folder, config) == "F32"
    save_file({name: tensor.bfloat16() for name, tensor in load_file(folder / SINGLE).items()}, folder / SINGLE)
    assert stored_dtype(folder, config) == "BF16"


def test_a_missing_tensor_is_named(folder: Path) -> None:
    weights = load_file(folder / SINGLE)
    del weights[DOWN]
    save_file(weights, folder / SINGLE)
    with pytest.raises(BadModel, match=rf"{DOWN}: is in none of its files"):
        model_revision(folder)


def test_an_untied_model_needs_its_head(folder: Path) -> None:
    make_config(folder, tie_word_embeddings=False)
    with pytest.raises(BadModel, match=f"{HEAD}: is in none"):
        model_revision(folder)


def test_a_tensor_nobody_would_use_is_refused(folder: Path) -> None:
    bias = {"model.layers.0.self_attn.q_proj.bias": torch.zeros(128)}
    save_file(load_file(folder / SINGLE) | bias, folder / SINGLE)
    with pytest.raises(BadModel, match=r"q_proj\.bias: is no tensor of LlamaForCausalLM"):
        model_revision(folder)


def test_wrong_shapes_and_types_are_named(folder: Path) -> None:
    config = read_config(folder)
    weights = make_weights(config)
    save_file(weights | {DOWN: torch.zeros(3, 4)}, folder / SINGLE)
    with pytest.raises(BadModel, match=rf"{DOWN}: expected shape \(64, 96\), found \(3, 4\)"):
        list(tensors(folder, config))
    save_file(weights | {DOWN: weights[DOWN].to(torch.int32)}, folder / SINGLE)
    with pytest.raises(BadModel, match=rf"{DOWN}: torch\.int32 is not served"):
        list(tensors(folder, config))


def test_a_folder_without_weights_and_a_file_that_holds_none(folder: Path) -> None:
    (folder / SINGLE).write_bytes(b"not weights at all")
    with pytest.raises(BadModel, match="is no safetensors file"):
        model_revision(folder)
    (folder / SINGLE).unlink()
    with pytest.raises(BadModel, match="has neither"):
        model_revision(folder)


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'])
def test_an_index_that_lists_no_files_is_refused(index: str, folder: Path) -> None:
    (folder / SINGLE).unlink()
    (folder / INDEX).write_text(index)
    with pytest.raises(BadModel, match="weight_map"):
        model_revision(folder)


def test_an_index_cannot_leave_the_folder(folder: Path) -> None:
    (folder / SINGLE).rename(folder.parent / "outside.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": {DOWN: "../outside.safetensors"}}))
    with pytest.raises(BadModel, match="is no file of this folder"):
        model_revision(folder)
