"""Tensors of a folder, and the revision that names them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine_agent.engine.config import read_config
from engine_agent.engine.errors import BadModel
from engine_agent.engine.weights import HEAD, INDEX, SINGLE, model_revision, read_weights
from tests.unit.engine.making import make_config, make_folder, make_weights, save_weights

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
        again = read_weights(sharded, config)
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
        read_weights(folder, config)
    save_file(weights | {DOWN: weights[DOWN].to(torch.int32)}, folder / SINGLE)
    with pytest.raises(BadModel, match=rf"{DOWN}: torch\.int32 is not served"):
        read_weights(folder, config)


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
