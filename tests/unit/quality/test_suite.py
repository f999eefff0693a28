"""The suite on a tiny model: everything real, little of it. And `luminet quality` through the command's own door."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from controlplane.cli import main
from engine_agent.engine.calibration import save_calibration, scale_set
from engine_agent.engine.model import load_model
from engine_agent.engine.weights import model_revision
from engine_agent.tools.errors import ToolError
from engine_agent.tools.quality import suite
from engine_agent.tools.quality.artefact import Artefact, load_artefact
from engine_agent.tools.quality.command import MODEL
from engine_agent.tools.quality.hits import hit_equals_miss
from engine_agent.tools.quality.injection import NOTHING, Injection
from engine_agent.tools.quality.metrics import Comparison
from engine_agent.tools.quality.needle import found_share, keys_of
from engine_agent.tools.quality.observing import calibrate
from engine_agent.tools.quality.plots import fact
from engine_agent.tools.quality.reading import reader
from engine_agent.tools.quality.report import headline, remarks, table
from engine_agent.tools.quality.texts import read_texts
from kernels.formats import KV_FORMATS
from kernels.layout import PageLayout
from kernels.scales import ScaleSet
from tests.unit.quality.making import make_artefact, make_measurement, make_model

QUICK = ["--quick", "--documents", "2", "--tokens", "100", "--formats", "int8"]


# --- what a run finds -------------------------------------------------------------------------------------------------


def test_two_bits_fail_every_gate(artefact: Artefact) -> None:
    control = artefact.of("int2")
    assert control is not None
    assert control.verdict == "failed"
    assert artefact.is_control_rejected
    assert len(control.shortcomings) >= 3
    assert control.axes["plain"].delta_percent > 10


def test_pages_in_fp32_are_attention_without_pages(artefact: Artefact) -> None:
    exact = artefact.of("fp32")
    assert exact is not None
    assert exact.verdict == "passed"
    assert exact.reference == "without pages"
    assert exact.axes["plain"].agreement == 1
    assert abs(exact.axes["plain"].delta_percent) < 1e-3
    assert abs(exact.axes["outliers"].delta_percent) < 1e-2  # the injection itself changes nothing


def test_fewer_bits_cost_more(artefact: Artefact) -> None:
    found = [artefact.of(name) for name in ("fp32", "bf16", "int8", "nvfp4", "int2")]
    losses = [one.axes["plain"].divergence for one in found if one]
    assert losses == sorted(losses)
    assert len(losses) == 5


def test_calibration_takes_outliers_out_and_loud_keys_in(artefact: Artefact) -> None:
    for name in ("int8", "nvfp4"):
        neutral, calibrated = (one for one in artefact.measurements if one.kv_format == name)
        assert (neutral.is_calibrated, calibrated.is_calibrated) == (False, True)
        assert calibrated.axes["outliers"].divergence < neutral.axes["outliers"].divergence / 2
    assert calibrated.axes["loud"].divergence < neutral.axes["loud"].divergence
    assert "loud" not in artefact.measurements[3].axes  # int8 has no static scale


def test_a_hit_equals_a_miss_in_every_format(artefact: Artefact) -> None:
    assert all(one.hit_equals_miss for one in artefact.measurements)


def test_progress_reaches_the_end(artefact: Artefact, steps: list[tuple[str, int, int]]) -> None:
    assert [done for _, done, _ in steps] == list(range(len(steps)))
    assert {of for _, _, of in steps} == {len(steps)}


def test_scales_beside_the_model_are_those_that_count(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    texts = read_texts(folder, folder / "heldout.jsonl", length=100, documents=2, kept_back=2)
    model, revision = load_model(folder), model_revision(folder)
    found = calibrate(model, texts.calibration, model_revision=revision, text_sha256="t")
    found = replace(found, key_mean=found.key_mean + 1)
    save_calibration(found, folder)
    _, calibrations = suite._prepared(model, folder, revision, texts)
    served = scale_set(found, KV_FORMATS["int8"]).digest
    assert scale_set(calibrations["plain"], KV_FORMATS["int8"]).digest == served
    assert scale_set(calibrations["outliers"], KV_FORMATS["int8"]).digest != served


# --- its parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KV_FORMATS)
def test_hits_are_compared_to_the_bit(name: str, folder: Path) -> None:
    model = load_model(folder)
    some = reader(model, PageLayout(KV_FORMATS[name], 2, 2, 32))
    document = torch.randint(1, 96, (150,), generator=torch.Generator().manual_seed(0))
    assert hit_equals_miss(some, document, (16, 48, 64, 80)) == []


def test_a_page_that_is_not_what_it_should_be_is_noticed(folder: Path) -> None:
    """Keys that depend on how often something was computed: what a wrong scale or stride would look like."""
    model, times = load_model(folder), iter(range(1000))

    class Drifting(Injection):
        def keys(self, layer: int, keys: torch.Tensor) -> torch.Tensor:
            return keys * (1 + 1e-3 * next(times))

    some = reader(model, PageLayout(KV_FORMATS["int8"], 2, 2, 32), None, Drifting())
    document = torch.randint(1, 96, (100,), generator=torch.Generator().manual_seed(0))
    assert hit_equals_miss(some, document, (16, 64)) == [16, 64]


def test_needles_are_found_by_what_remembers_them() -> None:
    shares = {name: found_share(KV_FORMATS[name], 0.9, keys=512) for name in ("fp32", "bf16", "int8", "int4", "int2")}
    assert (shares["fp32"], shares["bf16"], shares["int8"]) == (1, 1, 1)
    assert shares["int2"] < 0.6 < 0.95 < shares["int4"]
    assert found_share(KV_FORMATS["int4"], 0.95, keys=512, is_centred=True) > found_share(
        KV_FORMATS["int4"], 0.95, keys=512
    )


def test_near_duplicates_are_as_near_as_said() -> None:
    keys, outliers = keys_of(0.9, keys=512)
    cosines = torch.nn.functional.cosine_similarity(keys[0::16], keys[1::16])
    assert cosines.mean().item() == pytest.approx(0.9, abs=0.02)
    assert (outliers != 0).sum() == 4


def test_documents_kept_back_are_judged_by_no_one(folder: Path) -> None:
    texts = read_texts(folder, folder / "heldout.jsonl", length=150, documents=None, kept_back=2)
    assert (texts.judged.shape, texts.calibration.shape) == ((4, 150), (2, 150))
    assert bool((texts.judged[:, 0] == 0).all())  # each begins with the model's first token
    assert not {tuple(one) for one in texts.judged.tolist()} & {tuple(one) for one in texts.calibration.tolist()}
    assert texts.sha256 != texts.calibration_sha256
    assert texts.owners == (0, 1, 2, 3)
    shorter = read_texts(folder, folder / "heldout.jsonl", length=60, documents=2, kept_back=2)
    assert shorter.owners == (0, 0, 0, 1, 1, 1)
    assert torch.equal(shorter.judged[:2].flatten(), texts.judged[0, :120])


def test_one_long_text_is_cut_into_documents(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("many letters " * 50)
    texts = read_texts(folder, path, length=100, documents=None, kept_back=2)
    assert (len(texts.judged), len(texts.calibration)) == (4, 2)


@pytest.mark.parametrize("line", ["{", "[]", '{"name": "x"}', '{"text": 3}'])
def test_a_line_that_holds_no_text_is_named(line: str, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    path.write_text(f'{{"text": "fine"}}\n\n{line}\n')
    with pytest.raises(ToolError, match=r"text\.jsonl: line 3: "):
        read_texts(folder, path, length=10, documents=None, kept_back=1)


def test_too_few_documents_are_counted(folder: Path) -> None:
    with pytest.raises(ToolError, match="0 documents of 9999 tokens or more, and 3 are needed"):
        read_texts(folder, folder / "heldout.jsonl", length=9999, documents=None, kept_back=1)


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_the_table_has_a_line_for_each_measurement(artefact: Artefact) -> None:
    lines = table(artefact).splitlines()
    for one in artefact.measurements:
        assert any(line.startswith(f"{one.kv_format} ") and line.endswith(one.verdict) for line in lines)
    assert "\x1b" not in table(artefact)
    assert "\x1b[31mfailed" in table(artefact, is_colourful=True)
    assert "4 documents in windows of 160 tokens" in headline(artefact)
    assert "quick: too little to decide by" in headline(artefact)


def test_a_blind_run_says_so() -> None:
    assert "this run is blind" in remarks(make_artefact(is_control_rejected=False))[-1]
    assert remarks(make_artefact()) == []


def test_the_plots_title_states_the_fact() -> None:
    bf16, int8 = make_measurement("bf16"), make_measurement("int8")
    wide = replace(bf16, token_bytes=512)
    assert fact(make_artefact(wide, int8)) == "int8 holds 1.78 times the tokens of bf16 and passes"
    assert fact(make_artefact(wide, make_measurement(verdict="failed"))) == "No format below bf16 passes"


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_what_others_read(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, plots = tmp_path / "out", tmp_path / "plots"
    options = ["--text", str(folder / "heldout.jsonl"), "--out", str(out), "--plots", str(plots), "--json"]
    status = main(["quality", str(folder), *QUICK, *options])
    said, err = capsys.readouterr()
    found = load_artefact(out, backend="torch-cpu", model_revision=model_revision(folder))
    assert json.loads(said)["digest"] == json.loads((out / "quality-torch-cpu.json").read_text())["digest"]
    assert {one.kv_format for one in found.measurements} == {"fp32", "bf16", "int2", "int8"}
    assert status == (0 if found.is_control_rejected else 3)
    assert sorted(path.name for path in plots.iterdir()) == ["quality.png", "quality.svg"]
    assert "wrote " in err
    assert not (folder / "quality-torch-cpu.json").exists()  # part of a run is no artefact of the model


def test_a_blind_run_ends_with_a_status_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from engine_agent.tools.quality import command

    monkeypatch.setattr(command, "measure", lambda *_, **__: make_artefact(is_control_rejected=False))
    assert main(["quality", str(folder), *QUICK]) == 3
    assert "this run is blind" in capsys.readouterr().out


def test_only_a_whole_run_is_laid_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from engine_agent.tools.quality import command

    monkeypatch.setattr(command, "measure", lambda *_, **__: make_artefact())
    for part in (["--quick"], ["--formats", "int8"], ["--documents", "9"], ["--tokens", "512"]):
        assert main(["quality", str(tmp_path), *part]) == 0
        assert not (tmp_path / "quality-torch-cpu.json").exists()
    assert main(["quality", str(tmp_path)]) == 0
    assert (tmp_path / "quality-torch-cpu.json").exists()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--formats", "int3"], "'int3' is none of"),
        (["--documents", "x"], "'x' is no whole number"),
        (["--text", "nowhere.jsonl", "--tokens", "512"], "nowhere.jsonl: No such file"),
        (["--device", "nonsense"], "'nonsense' is no device here"),
        (["--tokens", "10"], "tokens: 10 is not between 65 and the model's"),
        (["--tokens", "100000"], "tokens: 100000 is not between 65 and the model's"),
    ],
)
def test_what_cannot_be_understood_is_said(
    options: list[str], problem: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["quality", str(folder), *options])
    except SystemExit as left:
        status = int(str(left.code))
    assert status == 1
    assert problem in capsys.readouterr().err


def test_few_documents_or_short_ones_decide_nothing(artefact: Artefact) -> None:
    assert artefact.is_quick
    assert not any(artefact.may_serve(one.kv_format, one.scale_set) for one in artefact.measurements)


def test_a_loss_by_byte_is_that_by_token_spread_over_its_bytes(artefact: Artefact) -> None:
    assert artefact.bytes_per_token == pytest.approx(1)  # the tiny model's tokens are letters
    comparison = Comparison()
    reference, other = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    comparison.add(0, reference, other, torch.tensor([0]), decoded=0)
    comparison.add(1, reference, other, torch.tensor([0]), decoded=1)
    found = suite.figures_of(comparison, 4.0)
    assert found.delta_percent == pytest.approx(100)  # half as likely: twice the perplexity
    assert found.byte_delta_percent == pytest.approx(100 * (2 ** (1 / 4) - 1))
    assert found.byte_divergence == pytest.approx(found.divergence / 4)


def test_what_lies_beside_the_demo_model_is_about_that_model_and_lets_the_default_through() -> None:
    found = load_artefact(MODEL, backend="torch-cpu", model_revision=model_revision(MODEL))
    assert not found.is_quick
    assert {one.kv_format for one in found.measurements} == set(KV_FORMATS)
    assert all(one.hit_equals_miss for one in found.measurements)
    assert found.may_serve("fp8")
    assert not found.may_serve("int2")


def test_a_folder_without_a_model_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quality", str(tmp_path)]) == 1
    assert "config.json" in capsys.readouterr().err


def test_scales_that_are_not_this_models_stop_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_model(tmp_path)
    model = load_model(folder)
    found = calibrate(model, torch.randint(1, 96, (2, 64)), model_revision="other", text_sha256="t", injection=NOTHING)
    save_calibration(found, folder)
    assert main(["quality", str(folder), *QUICK, "--text", str(folder / "heldout.jsonl")]) == 1
    assert "model_revision: expected" in capsys.readouterr().err


def test_neutral_scales_are_not_calibrated_ones(artefact: Artefact) -> None:
    ones = torch.ones(2, 2)
    assert ScaleSet(ones, ones).digest == ""
    assert {one.scale_set for one in artefact.measurements if not one.is_calibrated} == {""}
