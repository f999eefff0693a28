"""`luminet calc`: the KV calculator at the terminal. It asks no control plane: everything is computed here."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from controlplane.client.calc_paper import columns_of, paper_for
from controlplane.client.calc_refusals import in_options, machine_checked
from controlplane.client.calc_report import answer_print, models_print
from controlplane.client.errors import ClientError
from controlplane.client.tables import Paper
from kernels.calculator.asked import asked, described, document
from kernels.calculator.calculating import calculate
from kernels.errors import InvalidArgument
from kernels.models.presets import PRESETS, preset_shape

LARGEST_CONFIG = 16 * 2**20


def calc(options: argparse.Namespace) -> int:
    paper = paper_for(sys.stdout, is_json=options.json)
    try:
        if options.models:
            _models(options, paper)
        else:
            _answer(options, paper)
    except InvalidArgument as error:
        print(f"luminet: {in_options(error)}", file=sys.stderr)
        return 1
    except ClientError as error:
        print(f"luminet: {error}", file=sys.stderr)
        return 1
    return 0


def _models(options: argparse.Namespace, paper: Paper) -> None:
    shapes = {slug: preset_shape(slug) for slug in PRESETS}
    if options.json:
        paper.json([{"slug": slug, **described(shape)} for slug, shape in shapes.items()])
    else:
        models_print(paper, shapes, columns=columns_of())


def _answer(options: argparse.Namespace, paper: Paper) -> None:
    machine_checked(options)
    question = asked(
        model=options.model,
        config=None if options.config is None else _config(options.config),
        kv_dtypes=options.kv_dtype,
        accelerator=options.accelerator,
        memory_bytes=options.memory,
        bandwidth_bytes_per_second=options.bandwidth,
        parameters=options.parameters,
        active_parameters=options.active_parameters,
        context_tokens=options.context,
        concurrency=options.concurrency,
        shared_prefix_tokens=options.shared_prefix,
        tensor_parallel=options.tensor_parallel,
        respect_windows=not options.all_tokens,
        memory_utilisation=options.memory_utilisation,
        reserve_bytes=options.reserve,
        weights_dtype=options.weights_dtype,
        weights_bytes=options.weights,
    )
    answer = calculate(question)
    if options.json:
        paper.json(document(question.shape, answer))
    else:
        answer_print(paper, question.shape, answer, columns=columns_of())


def _config(name: str) -> Any:
    try:
        data = sys.stdin.buffer.read(LARGEST_CONFIG + 1) if name == "-" else _read(Path(name))
    except OSError as error:
        raise ClientError(f"{name}: {error.strerror or error}") from None
    if len(data) > LARGEST_CONFIG:
        raise ClientError(f"{name}: is larger than {LARGEST_CONFIG} bytes")
    try:
        return json.loads(data)
    except RecursionError:
        raise ClientError(f"{name}: is nested too deep") from None
    except ValueError as error:
        raise ClientError(f"{name}: is no JSON ({str(error)[:100]})") from None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST_CONFIG + 1)
