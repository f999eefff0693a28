"""Scales and means: found, saved, refused, and worth having."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from controlplane.cli import main
from engine_agent.engine.calibration import (
    DETAILS,
    FILE,
    HEADROOM,
    Calibration,
    load_calibration,
    save_calibration,
    scale_set,
)
from engine_agent.engine.errors import BadModel
from engine_agent.engine.model import Model, load_model
from engine_agent.engine.weights import model_revision
from engine_agent.tools.quality.calibrating import sequences_of
from engine_agent.tools.quality.injection import Injection
from engine_agent.tools.quality.observing import calibrate
from engine_agent.tools.quality.reading import reader
from kernels.formats import KV_FORMATS
from kernels.layout import PageLayout
from kernels.scales import NEUTRAL
from tests.unit.quality.making import make_model


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load_model(folder)


@pytest.fixture(scope="module")
def found(model: Model) -> Calibration:
    return calibrate(model, tokens(6), model_revision="r", text_sha256="t")


def tokens(sequences: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(1, 96, (sequences, 100), generator=torch.Generator().manual_seed(seed))


def test_what_is_found_is_what_was_written(model: Model) -> None:
    seen: list[tuple[int, torch.Tensor, torch.Tensor]] = []

    def observe(layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        seen.append((layer, keys.clone(), values.clone()))

    layout = PageLayout(KV_FORMATS["fp32"], 2, 2, 32)
    watched = reader(model, layout)
    replace(watched, observe=observe).hidden(tokens(6), decoded_tokens=0)
    found = calibrate(model, tokens(6), model_revision="r", text_sha256="t")
    assert found.tokens == 600
    for layer in range(2):
        keys = torch.cat([keys for number, keys, _ in seen if number == layer])
        values = torch.cat([values for number, _, values in seen if number == layer])
        torch.testing.assert_close(found.key_mean[layer], keys.mean(0), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(
            found.key_amax[layer], (keys - keys.mean(0)).abs().amax((0, 2)), atol=1e-4, rtol=1e-4
        )
        torch.testing.assert_close(found.value_amax[layer], values.abs().amax((0, 2)), atol=1e-5, rtol=1e-4)


def test_a_format_takes_of_it_what_it_uses(found: Calibration) -> None:
    for name in ("fp32", "bf16"):
        assert scale_set(found, KV_FORMATS[name]).digest == NEUTRAL
    int8 = scale_set(found, KV_FORMATS["int8"])
    assert bool((int8.keys == 1).all())
    assert int8.key_means is found.key_mean
    fp8 = scale_set(found, KV_FORMATS["fp8"])
    torch.testing.assert_close(fp8.keys * 448, found.key_amax * HEADROOM)
    torch.testing.assert_close(fp8.values * 57_344, found.value_amax * HEADROOM)
    nvfp4 = scale_set(found, KV_FORMATS["nvfp4"])
    torch.testing.assert_close(nvfp4.keys * 6 * 448, found.key_amax * HEADROOM)
    digests = {scale_set(found, KV_FORMATS[name]).digest for name in ("int8", "fp8", "nvfp4")}
    assert len(digests) == 3


def test_a_head_that_is_silent_has_a_scale_all_the_same(model: Model) -> None:
    silent = replace(model, embedding=torch.zeros_like(model.embedding))
    found = calibrate(silent, tokens(1), model_revision="r", text_sha256="t")
    assert bool((found.value_amax > 0).all())
    assert bool((scale_set(found, KV_FORMATS["nvfp4"]).values > 0).all())


def test_the_same_text_and_model_give_the_same_file(tmp_path: Path, model: Model, found: Calibration) -> None:
    again = calibrate(model, tokens(6), model_revision="r", text_sha256="t")
    assert len({save_calibration(one, tmp_path).read_bytes() for one in (found, again)}) == 1
    loaded = load_calibration(tmp_path, model.config, model_revision="r")
    assert loaded is not None
    assert scale_set(loaded, KV_FORMATS["fp8"]).digest == scale_set(found, KV_FORMATS["fp8"]).digest


def test_a_folder_without_scales_has_none(tmp_path: Path, model: Model) -> None:
    assert load_calibration(tmp_path, model.config, model_revision="r") is None


def test_another_models_scales_are_refused(tmp_path: Path, model: Model, found: Calibration) -> None:
    save_calibration(found, tmp_path)
    with pytest.raises(BadModel, match="model_revision: expected other, found r"):
        load_calibration(tmp_path, model.config, model_revision="other")


@pytest.mark.parametrize(
    ("name", "wrong", "problem"),
    [
        ("key_amax", torch.ones(3, 2), r"expected float32 \(2, 2\), found torch.float32 \(3, 2\)"),
        ("key_mean", torch.ones(2, 2), r"expected float32 \(2, 2, 32\)"),
        ("value_amax", torch.ones(2, 2).half(), ".*found torch.float16"),
        ("key_amax", torch.tensor([[1.0, 1.0], [0.0, 1.0]]), "holds 0, and a scale is above 0"),
        ("value_amax", torch.tensor([[1.0, -1.0], [1.0, 1.0]]), "holds -1"),
        ("value_amax", torch.tensor([[1.0, torch.nan], [1.0, 1.0]]), "holds a NaN"),
        ("key_mean", torch.full((2, 2, 32), torch.inf), "holds a NaN, or a number beyond"),
    ],
)
def test_what_can_be_no_scales_is_refused_by_name(
    name: str, wrong: torch.Tensor, problem: str, tmp_path: Path, model: Model, found: Calibration
) -> None:
    path = save_calibration(found, tmp_path)
    with safe_open(path, framework="pt") as file:
        details = file.metadata()
    save_file(load_file(path) | {name: wrong}, path, details)
    with pytest.raises(BadModel, match=rf"{name}: {problem}"):
        load_calibration(tmp_path, model.config, model_revision="r")


@pytest.mark.parametrize("details", [None, {DETAILS: "{}"}, {DETAILS: "no"}, {DETAILS: '{"schema": "other"}'}])
def test_scales_that_do_not_say_whose_they_are_are_refused(
    details: dict[str, str] | None, tmp_path: Path, model: Model, found: Calibration
) -> None:
    path = save_calibration(found, tmp_path)
    save_file(load_file(path), path, details)
    with pytest.raises(BadModel, match=DETAILS):
        load_calibration(tmp_path, model.config, model_revision="r")


def test_what_is_no_file_of_scales_is_refused(tmp_path: Path, model: Model) -> None:
    (tmp_path / FILE).write_bytes(b"nothing")
    with pytest.raises(BadModel, match="is no safetensors file"):
        load_calibration(tmp_path, model.config, model_revision="r")
    save_file({"other": torch.ones(1)}, tmp_path / FILE, {DETAILS: "{}"})
    with pytest.raises(BadModel, match=r"luminet\.schema"):
        load_calibration(tmp_path, model.config, model_revision="r")


def test_keys_beyond_the_range_need_their_scales(model: Model) -> None:
    """A third of the loss at most, says the inventory; with keys this loud it is far less."""
    stretched = Injection(stretch=512.0)
    found = calibrate(model, tokens(4, seed=5), model_revision="r", text_sha256="t", injection=stretched)
    assert (found.key_mean.abs().amax(-1) + found.key_amax).max() > 4 * 448
    layout, read = PageLayout(KV_FORMATS["fp8_e4m3"], 2, 2, 32), tokens(4)
    exact = reader(model, PageLayout(KV_FORMATS["fp32"], 2, 2, 32)).read(read).log_softmax(-1)

    def loss(one: object) -> float:
        scales = scale_set(found, KV_FORMATS["fp8_e4m3"]) if one else None
        other = reader(model, layout, scales, stretched).read(read).log_softmax(-1)
        return (exact.exp() * (exact - other)).sum(-1).mean().item()

    assert loss("scales") <= loss(None) / 3


def test_windows_are_of_one_length_and_of_no_more_tokens_than_asked() -> None:
    class Letters:
        def of(self, text: str) -> list[int]:
            return [ord(letter) for letter in text]

    found = sequences_of(Letters(), ["abc", "defgh", "ij"], length=3, most=8)  # type: ignore[arg-type]
    assert found.tolist() == [[97, 98, 99], [100, 101, 102]]
    assert sequences_of(Letters(), ["ab"], length=3, most=8).tolist() == [[97, 98]]  # type: ignore[arg-type]
    assert sequences_of(Letters(), [], length=3, most=8).numel() == 0  # type: ignore[arg-type]


def test_the_command_saves_scales_that_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_model(tmp_path)
    revision = model_revision(folder)
    assert main(["calibrate", str(folder), str(folder / "heldout.jsonl"), "--tokens", "500", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["scale_sets"].keys() == {"fp8", "fp8_e4m3", "fp8_e5m2", "int8", "k8v4", "int4", "nvfp4"}
    assert model_revision(folder) == revision
    loaded = load_calibration(folder, load_model(folder).config, model_revision=revision)
    assert loaded is not None
    assert said["scale_sets"]["fp8"] == scale_set(loaded, KV_FORMATS["fp8"]).digest
    assert main(["calibrate", str(folder), str(folder / "heldout.jsonl"), "--tokens", "500"]) == 0
    assert said["scale_sets"]["fp8"] in capsys.readouterr().out


def test_too_little_text_is_said(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "short.txt"
    text.write_text("too short")
    assert main(["calibrate", str(folder), str(text)]) == 1
    assert "10 tokens are too few to calibrate on" in capsys.readouterr().err
    assert main(["calibrate", str(folder), str(tmp_path / "nothing.txt")]) == 1
    assert "No such file" in capsys.readouterr().err
