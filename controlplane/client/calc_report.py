"""The tables of `luminet calc` for people: bytes in each format, what fits, and remarks."""

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from controlplane.client.tables import DIM, Paper
from kernels.calculator.answer import Answer, FormatRow, Machine
from kernels.calculator.calculating import calculate
from kernels.calculator.question import Question
from kernels.formats import BASELINE, KV_FORMATS
from kernels.shapes import Layers, ModelShape

DASH = "–"
NARROWEST = 40  # columns
TIED = "\xa0"  # a space at which no line is broken
OF_MODELS = (
    "PER TOKEN in bf16; SIZE: elements of a KV head's key. Sources: each one's config.json and card; --json says."
)
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
KINDS = {
    "full": "keep every token",
    "window": "keep the last {window:,} tokens",
    "chunked": "keep a chunk of {window:,} tokens",
    "latent": "keep one latent vector",
    "shared": "read what another layer keeps",
    "state": "keep a state of {state}",
    "none": "keep nothing",
}


Columns = dict[str, Callable[[FormatRow], str]]


def answer_print(paper: Paper, shape: ModelShape, answer: Answer, *, columns: int) -> None:
    paper.say(*_wrapped(_headlines(shape, answer), columns), "")
    _formats_table(paper, _bytes_columns(answer), answer)
    if answer.machine is not None:
        paper.say("", *_wrapped([_machine_words(answer.machine, answer.tensor_parallel)], columns), "")
        _formats_table(paper, _fit_columns(answer), answer)
    remarks = _wrapped(_remarks(answer), columns)
    paper.say(*([""] if remarks else []), *(paper.paint(line, DIM) for line in remarks))


def models_print(paper: Paper, shapes: Mapping[str, ModelShape], *, columns: int) -> None:
    heads = ["MODEL", "PARAMETERS", "LAYERS", "KIND", "HEADS", "KV HEADS", "SIZE", "PER TOKEN"]
    paper.numbers(heads, [_model_cells(slug, shape) for slug, shape in shapes.items()])
    paper.say("", *(paper.paint(line, DIM) for line in _wrapped([OF_MODELS], columns)))


def _wrapped(sentences: Sequence[str], columns: int) -> list[str]:
    """Return the sentences as lines. A number stays on one line with its unit."""
    width = max(columns, NARROWEST)
    tied = [re.sub(r"(?<=[0-9]) (?=[A-Za-z])", TIED, sentence) for sentence in sentences]
    lines = [textwrap.wrap(sentence, width, break_long_words=False, break_on_hyphens=False) for sentence in tied]
    return [line.replace(TIED, " ") for of_one in lines for line in of_one]


def _model_cells(slug: str, shape: ModelShape) -> list[str]:
    (row,) = calculate(Question(shape, (KV_FORMATS[BASELINE],))).rows
    numbers = (shape.layer_count, shape.attention, shape.query_heads, shape.kv_heads, shape.key_size)
    total = shape.parameters.total if shape.parameters else None
    return [slug, billions(total), *map(str, numbers), size(row.bytes_per_token)]


def _headlines(shape: ModelShape, answer: Answer) -> list[str]:
    parts = [shape.name, f"{shape.layer_count} layers", _heads_words(shape)]
    if shape.parameters is not None:
        parts.append(f"{billions(shape.parameters.total)} parameters ({shape.parameters.source})")
    lines = [f"{TIED}· ".join(part.replace(" ", TIED) for part in parts if part)]
    if any(layer_group.kind != "full" for layer_group in shape.layers):
        counted = "" if answer.respect_windows else " Here every one of them is counted as if it kept all."
        lines.append("Of its layers " + _kinds_words(shape.layers) + f".{counted}")
    prefix = f", {answer.shared_prefix_tokens:,} of them shared" if answer.shared_prefix_tokens else ""
    lines.append(f"A request has {answer.context_tokens:,} tokens{prefix}, in blocks of {answer.block_tokens}.")
    return lines


def _heads_words(shape: ModelShape) -> str:
    if shape.attention == "none":
        return ""
    if shape.attention == "MLA":
        return f"MLA, {shape.query_heads} heads, latent vector of {shape.key_size}"
    sizes = f"{shape.key_size}" if shape.key_size == shape.value_size else f"{shape.key_size} and {shape.value_size}"
    most = (
        "up to " if len({(layer_group.query_heads, layer_group.kv_heads) for layer_group in shape.keeping}) > 1 else ""
    )
    return f"{shape.attention}, {most}{shape.query_heads} heads, {most}{shape.kv_heads} KV heads of {sizes}"


def _kinds_words(layers: Sequence[Layers]) -> str:
    """Return each kind of layer once, with its count, whatever heads its layers have."""
    counts = Counter[str]()
    for layer_group in layers:
        counts[_kind_words(layer_group)] += layer_group.count
    return ", ".join(f"{count} {words}" for words, count in counts.items())


def _kind_words(layers: Layers) -> str:
    state = "unknown size" if layers.state_bytes is None else size(layers.state_bytes)
    return KINDS[layers.kind].format(window=layers.window_tokens or 0, state=state)


def _machine_words(machine: Machine, gpus: int) -> str:
    weights = f"weights {gigabytes(machine.weights_bytes)}" + (
        f" ({machine.weights_dtype})" * bool(machine.weights_dtype)
    )
    return (
        f"{gpus} × {machine.accelerator}, each: {gigabytes(machine.memory_bytes)} × {machine.memory_utilisation:g}"
        f" − {weights} − reserve {gigabytes(machine.reserve_bytes)} = {gigabytes(machine.pool_bytes)} for KV."
    )


def _formats_table(paper: Paper, columns: Columns, answer: Answer) -> None:
    table_columns: Columns = {
        "KV DTYPE": lambda row: row.kv_dtype if row.is_offered else f"({row.kv_dtype})",
        **columns,
    }
    paper.numbers(list(table_columns), [[of(row) for of in table_columns.values()] for row in answer.rows])


def _bytes_columns(answer: Answer) -> Columns:
    """Return the columns that have something to show, each with a function for its cells."""
    columns: Columns = {
        "× BF16": lambda row: f"{row.times_smaller:.2f}",
        "PER TOKEN": lambda row: size(row.bytes_per_token),
        "PER REQUEST": lambda row: size(row.bytes_per_request),
    }
    if answer.tensor_parallel > 1:
        columns["PER GPU"] = lambda row: size(row.bytes_per_request_per_gpu)
    if answer.concurrency > 1:
        columns[f"ALL {answer.concurrency:,}"] = lambda row: size(row.bytes_at_concurrency)
    return columns


def _fit_columns(answer: Answer) -> Columns:
    columns: Columns = {
        "TOKENS FIT": lambda row: count(row.tokens_that_fit),
        "REQUESTS FIT": lambda row: count(row.requests_that_fit),
        "TOKENS/S OF 1": lambda row: count(row.tokens_per_second.one_request),
    }
    if answer.concurrency > 1:
        columns[f"OF {answer.concurrency:,}"] = lambda row: count(row.tokens_per_second.at_concurrency)
    columns["WHEN FULL"] = lambda row: count(row.tokens_per_second.full_pool)
    return columns


def _remarks(answer: Answer) -> list[str]:
    remarks = []
    if any(not row.is_offered for row in answer.rows):
        remarks.append(
            "In brackets: not for policies. fp32 and int2 are there to measure with, the others are not ours."
        )
    unfit = ", ".join(row.kv_dtype for row in answer.rows if row.concurrency_fits is False)
    if unfit:
        remarks.append(f"{answer.concurrency:,} requests do not fit in {unfit}.")
    if answer.machine is not None:
        remarks.append("Tokens/s: no more than bandwidth over the weights and cache that a step reads.")
    if any(row.residual_bytes_per_request for row in answer.rows):
        remarks.append("kivi2 keeps the newest 128 tokens in BF16: counted in what fits, not per request.")
    if answer.hidden_size_formula is not None:
        remarks.append(answer.hidden_size_formula.message)
    return [*remarks, *answer.notes]


def size(number: int) -> str:
    """Return the size with four digits: 320 KiB, 10.62 GiB."""
    power = min(max(number.bit_length() - 1, 0) // 10, len(UNITS) - 1)
    scaled = number / 1024**power
    return f"{scaled:.4g} {UNITS[power]}" if scaled < 10_000 else f"{scaled:,.0f} {UNITS[power]}"


def gigabytes(number: int) -> str:
    return f"{number / 10**9:.4g} GB" if number < 10**13 else f"{number / 10**9:,.0f} GB"


def billions(number: int | None) -> str:
    if number is None:
        return DASH
    return f"{number / 10**9:.3g} B" if number >= 10**9 else f"{number / 10**6:.3g} M"


def count(number: float | None) -> str:
    if number is None:
        return DASH
    return f"{number:,.0f}" if number >= 10 or isinstance(number, int) else f"{number:.2g}"
