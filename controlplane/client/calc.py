"""`luminet calc`: the KV calculator at the terminal. It uses no control plane and computes everything locally."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from controlplane.client.calc_amounts import names_read, number_read, share_read, size_read, whole_read
from controlplane.client.calc_paper import columns_of, paper_for
from controlplane.client.calc_refusals import in_options, machine_check
from controlplane.client.calc_report import answer_print, models_print
from controlplane.client.command import at_most_one, json_option
from controlplane.client.errors import ClientError
from controlplane.client.tables import Paper
from kernels.calculator.asked import asked, described, document
from kernels.calculator.calculating import calculate
from kernels.errors import InvalidArgument
from kernels.models.presets import PRESETS, preset_shape

LARGEST_CONFIG = 16 * 2**20
EXAMPLES = """\b
Examples:
  luminet calc --models
  luminet calc --model llama-3.1-70b --context 131072
  luminet calc --config config.json --kv-dtype bf16,fp8,int4 --accelerator h200 --tensor-parallel 4
"""


@at_most_one("--model", "--config", "--models", required=True)
@at_most_one("--weights-dtype", "--weights")
@click.command(epilog=EXAMPLES)
@click.option("--model", metavar="NAME", help="one of those that --models lists")
@click.option("--config", metavar="FILE", help="a Hugging Face config.json; - reads standard input")
@click.option("--models", is_flag=True, help="list the models that have a name here")
@click.option("--parameters", type=number_read, metavar="N", help="8.03B: where a config's cannot be counted")
@click.option("--active-parameters", type=number_read, metavar="N", help="those one token goes through")
@click.option("--kv-dtype", "kv_dtypes", type=names_read, metavar="NAMES", help="bf16,int4 or all; else policies' own")
@click.option("--context", "context_tokens", type=whole_read, metavar="TOKENS", help="of each request (8192)")
@click.option("--concurrency", type=whole_read, metavar="N", help="requests at once (1)")
@click.option(
    "--shared-prefix", "shared_prefix_tokens", type=whole_read, metavar="TOKENS", help="of each context, held once"
)
@click.option("--all-tokens", is_flag=True, help="layers with windows keep every token, too")
@click.option("--accelerator", metavar="NAME", help="a100, b200, b300, h100, h200, l40s, mi300x, rtx-4090")
@click.option("--memory", "memory_bytes", type=size_read, metavar="SIZE", help="24GB or 24GiB: of another one, on each")
@click.option(
    "--bandwidth", "bandwidth_bytes_per_second", type=size_read, metavar="SIZE", help="1.008TB: a second, on each"
)
@click.option("--tensor-parallel", type=whole_read, metavar="N", help="GPUs that share the model (1)")
@click.option("--memory-utilisation", type=share_read, metavar="SHARE", help="of the memory we may use (0.92)")
@click.option("--reserve", "reserve_bytes", type=size_read, metavar="SIZE", help="for activations, on each (1GiB)")
@click.option("--weights-dtype", metavar="NAME", help="bf16, fp8 or int4 and others: else as published")
@click.option("--weights", "weights_bytes", type=size_read, metavar="SIZE", help="all weights' size, where it is known")
@json_option
def calc(config: str | None, models: bool, all_tokens: bool, as_json: bool, **options: Any) -> None:
    paper = paper_for(sys.stdout, is_json=as_json)
    if models:
        _models(paper, as_json=as_json)
        return
    machine_check(options)
    document_read = None if config is None else _config(config)
    try:
        question = asked(config=document_read, respect_windows=not all_tokens, **options)
        answer = calculate(question)
        if as_json:
            paper.json(document(question.shape, answer))
        else:
            answer_print(paper, question.shape, answer, columns=columns_of())
    except InvalidArgument as error:
        raise ClientError(in_options(error)) from None


def _models(paper: Paper, *, as_json: bool) -> None:
    shapes = {slug: preset_shape(slug) for slug in PRESETS}
    if as_json:
        paper.json([{"slug": slug, **described(shape)} for slug, shape in shapes.items()])
    else:
        models_print(paper, shapes, columns=columns_of())


def _config(name: str) -> Any:
    try:
        content = sys.stdin.buffer.read(LARGEST_CONFIG + 1) if name == "-" else _read(Path(name))
    except OSError as error:
        raise ClientError(f"{name}: {error.strerror or error}") from None
    if len(content) > LARGEST_CONFIG:
        raise ClientError(f"{name}: is larger than {LARGEST_CONFIG} bytes")
    try:
        return json.loads(content)
    except RecursionError:
        raise ClientError(f"{name}: is nested too deep") from None
    except ValueError as error:
        raise ClientError(f"{name}: is no JSON ({str(error)[:100]})") from None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST_CONFIG + 1)
