"""A tiny model, and text it wrote itself: so it predicts something, and with rounded keys predicts it less well."""

import json
from pathlib import Path

import torch

from engine_agent.engine.model import load_model
from engine_agent.tools.quality.artefact import Artefact, Figures, Measurement
from engine_agent.tools.quality.reading import Pages, Row, reader
from kernels.formats import KV_FORMATS
from kernels.layout import PageLayout
from tests.unit.engine.making import make_folder

FIGURES = Figures(
    perplexity=9.5,
    delta_percent=0.01,
    delta_percent_low=-0.01,
    delta_percent_high=0.03,
    divergence=2e-5,
    divergence_low=1e-5,
    divergence_high=3e-5,
    byte_delta_percent=0.005,
    byte_delta_percent_low=-0.005,
    byte_delta_percent_high=0.015,
    byte_divergence=1e-5,
    byte_divergence_low=5e-6,
    byte_divergence_high=1.5e-5,
    divergence_p99=1e-4,
    divergence_decoded=2e-5,
    agreement=0.999,
    documents=30,
    tokens=38_000,
)


def make_text(folder: Path, *, documents: int = 6, tokens: int = 200, seed: int = 3) -> Path:
    """Drawn from the model's own predictions, one token after another."""
    model = load_model(folder)
    config = model.config
    layout = PageLayout(KV_FORMATS["fp32"], config.layers, config.kv_heads, config.head_size)
    some, chance = reader(model, layout), torch.Generator().manual_seed(seed)
    pages = Pages(layout, documents, tokens, torch.device("cpu"))
    drawn = torch.zeros(documents, tokens, dtype=torch.int64)
    for at in range(tokens - 1):
        rows = [Row(pages.of(number), at, at + 1) for number in range(documents)]
        logits = model.logits(some.step(pages.arena, rows, drawn[:, at], is_decode=True))
        logits[:, 0] = -torch.inf  # the beginning comes once
        drawn[:, at + 1] = logits.softmax(-1).multinomial(1, generator=chance)[:, 0]
    path = folder / "heldout.jsonl"
    letters = [" " if token == 95 else chr(32 + token) for token in range(96)]
    lines = [{"text": "".join(letters[token] for token in document[1:])} for document in drawn.tolist()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def make_model(folder: Path) -> Path:
    make_folder(folder)
    make_text(folder)
    return folder


def make_measurement(kv_format: str = "int8", *, scale_set: str = "", verdict: str = "passed") -> Measurement:
    return Measurement(
        kv_format=kv_format,
        scale_set=scale_set,
        reference="bf16",
        token_bytes=288,
        axes={"plain": FIGURES, "outliers": FIGURES},
        needle={"0.9": 1.0, "0.95": 1},
        hit_equals_miss=True,
        verdict=verdict,  # type: ignore[arg-type]
        findings=("ΔPPL 0.01 %",),
        shortcomings=() if verdict == "passed" else ("ΔPPL 7 %",),
    )


def make_artefact(
    *measurements: Measurement, is_quick: bool = False, is_control_rejected: bool = True, floor: str = "passed"
) -> Artefact:
    """Of `int8` alone, unless told; behind it what it is compared with."""
    of_floor = tuple(make_measurement(name, verdict=floor) for name in ("fp32", "bf16"))
    return Artefact(
        model_revision="a" * 64,
        backend="torch-cpu",
        device="a processor",
        versions={"torch": "2"},
        text_sha256="b" * 64,
        documents=30,
        window_tokens=1536,
        calibration_tokens=5120,
        bytes_per_token=2.0,
        is_quick=is_quick,
        is_control_rejected=is_control_rejected,
        seconds=100.0,
        measurements=(measurements or (make_measurement(),)) + of_floor,
    )
