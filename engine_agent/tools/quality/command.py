"""`luminet quality [MODEL_FOLDER]`: its options and its output."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from engine_agent.engine.errors import EngineError
from engine_agent.process.commands import run
from engine_agent.process.option_types import whole_read
from engine_agent.tools.errors import ToolError
from engine_agent.tools.options import new_parser
from engine_agent.tools.plots import plotting_checked
from engine_agent.tools.quality.artefact import Artefact, document, save_artefact
from engine_agent.tools.quality.plots import write_plots
from engine_agent.tools.quality.publishing import publish, publishing_checked
from engine_agent.tools.quality.report import headline, table
from engine_agent.tools.quality.suite import QUICK, Plan, measure
from engine_agent.tools.report import Progress, say_written, wants_colour
from kernels.errors import KernelError
from kernels.formats import KV_FORMATS

DEMO = Path(__file__).parents[2] / "demo"
MODEL = DEMO / "model"
TEXT = MODEL / "heldout.jsonl"
ABOUT = "Measure what each KV format costs in quality on a model, through the real paged ops, and judge it."
EXAMPLES = """examples:
  luminet quality
  luminet quality my-model --text heldout.jsonl --formats int8,int4
  luminet quality my-model --text heldout.jsonl --plots plots --json > quality.json
  luminet quality my-model --text heldout.jsonl --publish my-model

status: 0 when the control was rejected, 3 when it was not and the run is blind, 1 when something is wrong.
"""
BLIND = 3


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run(lambda: _measured(options), EngineError, ToolError, KernelError)


def parser() -> argparse.ArgumentParser:
    top = new_parser("luminet quality", ABOUT, EXAMPLES)
    top.add_argument("model", metavar="MODEL_FOLDER", nargs="?", type=Path, default=MODEL, help="the demo model")
    top.add_argument("--text", type=Path, default=TEXT, metavar="FILE", help="JSON lines with a text each, or one text")
    top.add_argument("--formats", type=_formats, metavar="A,B", help="only these, and what they are compared with")
    top.add_argument("--documents", type=whole_read(2), metavar="N", help="judge by so many documents (all)")
    top.add_argument("--tokens", type=whole_read(2), metavar="N", help=f"of each document ({Plan().tokens})")
    top.add_argument("--quick", action="store_true", help="little text: shows that all works, decides nothing")
    top.add_argument("--device", default="cpu", type=device_named, help="cpu or cuda")
    top.add_argument("--json", action="store_true", help="for programs")
    top.add_argument("--out", type=Path, metavar="FOLDER", help="where the JSON goes (a full run: MODEL_FOLDER)")
    top.add_argument("--publish", metavar="NAME", help="send it to LUMINET_URL, for the model served under that name")
    top.add_argument("--plots", type=Path, metavar="DIR", help="draw bytes per token against divergence, SVG and PNG")
    return top


def _formats(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in KV_FORMATS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(KV_FORMATS)}")
    return names


def device_named(text: str) -> str:
    """Return the name of an available device."""
    try:
        torch.empty(0, device=text)
    except (RuntimeError, AssertionError) as problem:
        raise argparse.ArgumentTypeError(f"{text!r} is no device here: {str(problem).splitlines()[0]}") from None
    return text


def plan_of(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else Plan()
    overrides = {name: getattr(options, name) for name in ("formats", "documents", "tokens")}
    return replace(plan, **{name: value for name, value in overrides.items() if value is not None})


def _measured(options: argparse.Namespace) -> int:
    if options.plots:
        plotting_checked()
    control_plane = publishing_checked(options.quick) if options.publish else None
    plan = plan_of(options)
    with Progress(sys.stderr) as progress:
        artefact = measure(options.model, options.text, plan, device=options.device, on_step=progress.show)
    if options.json:
        print(json.dumps(document(artefact)))
    else:
        print(headline(artefact), end="\n\n")
        print(table(artefact, is_colourful=wants_colour(sys.stdout)))
    say_written(*_written(options, plan, artefact))
    if control_plane is not None:
        url, token = control_plane
        stored = publish(artefact, options.publish, url=url, token=token)
        print(f"published {options.publish}: {', '.join(stored)}", file=sys.stderr)
    return 0 if artefact.is_control_rejected else BLIND


def _written(options: argparse.Namespace, plan: Plan, artefact: Artefact) -> list[Path]:
    """Write the results: of a complete run next to the model, where others look for it, of a partial one on request."""
    is_complete = replace(plan, formats=Plan().formats) == Plan() and set(plan.formats) == set(KV_FORMATS)
    is_whole = is_complete and not artefact.is_quick
    folder = options.out or (options.model if is_whole else None)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    written = [save_artefact(artefact, folder)] if folder else []
    return written + (write_plots(artefact, options.plots) if options.plots else [])
