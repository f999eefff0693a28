"""`luminet calibrate MODEL_FOLDER TEXT_FILE`: find a model's static scales and key means, and store them next to it."""

import argparse
import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from engine_agent.engine.calibration import Calibration, save_calibration, scale_set
from engine_agent.engine.config import read_config
from engine_agent.engine.errors import EngineError
from engine_agent.engine.model import load_model
from engine_agent.engine.weights import model_revision
from engine_agent.process.commands import run
from engine_agent.tools.errors import ToolError
from engine_agent.tools.options import new_parser
from engine_agent.tools.quality.command import device_named
from engine_agent.tools.quality.observing import calibrate
from engine_agent.tools.quality.texts import Tokens, read_documents
from engine_agent.tools.report import say_written
from kernels.errors import KernelError
from kernels.formats import KV_FORMATS
from kernels.scales import NEUTRAL

ABOUT = "Find static scales and key means of a model on a text, and save them beside it as kv_scales.safetensors."
TOKENS, WINDOW = 32_768, 2_048
LEAST = 64


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run(lambda: _calibrated(options), EngineError, ToolError, KernelError)


def parser() -> argparse.ArgumentParser:
    top = new_parser("luminet calibrate", ABOUT)
    top.add_argument("model", metavar="MODEL_FOLDER", type=Path, help="a Hugging Face folder; the scales go into it")
    top.add_argument("text", metavar="TEXT_FILE", type=Path, help="plain text, or JSON lines with a text each")
    top.add_argument("--tokens", type=int, default=TOKENS, metavar="N", help=f"read at most so many ({TOKENS:,})")
    top.add_argument("--device", default="cpu", type=device_named, help="cpu or cuda")
    top.add_argument("--json", action="store_true", help="for programs")
    return top


def sequences_of(tokens: Tokens, documents: Sequence[str], *, length: int, most: int) -> Tensor:
    """Return windows of one length, [windows, length], of the joined documents, without an incomplete last one."""
    ids = [token for text in documents for token in tokens.of(text)][:most]
    length = min(length, len(ids))
    return torch.tensor(ids[: len(ids) // length * length]).view(-1, length) if length else torch.zeros(0, 0)


def _calibrated(options: argparse.Namespace) -> int:
    config = read_config(options.model)
    window = min(WINDOW, config.max_positions)
    documents = read_documents(options.text)
    sequences = sequences_of(Tokens(options.model), documents, length=window, most=options.tokens)
    if sequences.numel() < LEAST:
        raise ToolError(options.text, f"{sequences.numel()} tokens are too few to calibrate on; {LEAST} at least")
    calibration = calibrate(
        load_model(options.model, device=options.device, most_positions=window),
        sequences,
        model_revision=model_revision(options.model),
        text_sha256=sha256(options.text.read_bytes()).hexdigest(),
    )
    path = save_calibration(calibration, options.model)
    digests = digests_of(calibration)
    if options.json:
        print(json.dumps({"file": str(path), "tokens": calibration.tokens, "scale_sets": digests}))
        return 0
    largest, values = calibration.key_amax.max().item(), calibration.value_amax.max().item()
    print(
        f"{calibration.tokens:,} tokens · largest key element {largest:.3g} from its mean, "
        f"largest value element {values:.3g}"
    )
    for name, digest in digests.items():
        print(f"{name:10}{digest}")
    say_written(path)
    return 0


def digests_of(calibration: Calibration) -> dict[str, str]:
    """Return the digest of the scale set of each format that uses one."""
    digests = {
        name: scale_set(calibration, kv_format).digest for name, kv_format in KV_FORMATS.items() if kv_format.is_offered
    }
    return {name: digest for name, digest in digests.items() if digest != NEUTRAL}
