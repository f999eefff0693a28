"""The calculator's answer as its page words it: exact bytes, what fits, and upper bounds. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.dashboard.frame.charts import bytes_text
from controlplane.dashboard.frame.states import Stat
from controlplane.dashboard.frame.tiles import NONE
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.settings.rows import divergence_words
from controlplane.fleet.models import QualityResult
from controlplane.fleet.quality import DEFAULT
from kernels.calculator.answer import Answer, FormatRow, Machine
from kernels.calculator.question import Question
from kernels.shapes import ModelShape

GB: Final = 10**9
Qualities = Sequence[tuple[QualityResult, str]]  # results for one format, with the wording of each


@dataclass(frozen=True, slots=True)
class Counted:
    """Everything the page shows below the form."""

    headline: str
    stats: tuple[Stat, ...]
    rows: Sequence[tuple[FormatRow, float, Qualities]]  # each with its bytes in percent of the largest
    notes: tuple[str, ...]
    bytes_title: str
    fit_title: str
    requests: str
    has_machine: bool


def counted_rows(name: str, question: Question, answer: Answer, measured: Sequence[QualityResult]) -> Counted:
    """Return the page's content. `measured`: results of the quality suite on the model."""
    usual = _usual(answer.rows)
    largest_bytes = max((row.bytes_per_token for row in answer.rows), default=0)
    return Counted(
        headline=_headline(name, answer, usual),
        stats=_stats(question.shape, answer, usual),
        rows=[
            (row, 100 * row.bytes_per_token / (largest_bytes or 1), _qualities(row, measured)) for row in answer.rows
        ],
        notes=_notes(answer),
        bytes_title=_bytes_title(name, answer, usual),
        fit_title="" if answer.machine is None else _fit_title(answer),
        requests=counted(answer.concurrency, "request"),
        has_machine=answer.machine is not None,
    )


def gigabytes(number: int) -> str:
    return f"{number / GB:,.1f} GB"


def billions(number: int) -> str:
    """Format a large count: "8.03 billion", or "3.20 million" below a billion."""
    return f"{number / 10**9:,.2f} billion" if number >= 10**9 else f"{number / 10**6:,.2f} million"


def _usual(rows: Sequence[FormatRow]) -> FormatRow:
    return next((row for row in rows if row.kv_dtype == DEFAULT), rows[0])


def _headline(name: str, answer: Answer, usual: FormatRow) -> str:
    token = f"{usual.bytes_per_token:,} bytes in {usual.kv_dtype}"
    machine = answer.machine
    if machine is None or usual.tokens_that_fit is None:
        return f"A token of {name} takes {token}"
    gpus = _gpus(machine, answer.tensor_parallel)
    holds = "holds" if answer.tensor_parallel == 1 else "hold"
    requests = "" if usual.requests_that_fit is None else f": {_requests(usual.requests_that_fit)} at once"
    return f"{gpus} {holds} {usual.tokens_that_fit:,} tokens of {name} in {usual.kv_dtype}{requests}"


def _requests(number: int) -> str:
    return f"{number:,} such request" if number == 1 else f"{number:,} such requests"


def _gpus(machine: Machine, gpus: int) -> str:
    name = "accelerator" if machine.accelerator == "custom" else machine.accelerator
    return f"One {name}" if gpus == 1 else f"{gpus:,} × {name}"


def _stats(shape: ModelShape, answer: Answer, usual: FormatRow) -> tuple[Stat, ...]:
    return (_model_stat(shape), _request_stat(answer, usual), _machine_stat(answer), _prefix_stat(answer, usual))


def _model_stat(shape: ModelShape) -> Stat:
    size = "" if shape.parameters is None else f" · {billions(shape.parameters.total)} parameters"
    source = "" if shape.parameters is None else f" ({shape.parameters.source})"
    heads = f"{shape.attention}, {shape.kv_heads} KV heads of {shape.key_size}" if shape.keeping else shape.attention
    return Stat("Model", counted(shape.layer_count, "layer"), f"{heads}{size}{source}")


def _request_stat(answer: Answer, usual: FormatRow) -> Stat:
    size = bytes_text(usual.bytes_per_request)
    note = f"of {answer.context_tokens:,} tokens in {usual.kv_dtype}, in blocks of {answer.block_tokens}"
    return Stat("One request", size, note)


def _machine_stat(answer: Answer) -> Stat:
    machine = answer.machine
    if machine is None:
        return Stat("Room for the cache", NONE, "Choose an accelerator to see what fits.")
    dtype_text = f" ({machine.weights_dtype})" if machine.weights_dtype else ""
    note = (
        f"each: {gigabytes(machine.memory_bytes)} × {machine.memory_utilisation:g} − weights "
        f"{gigabytes(machine.weights_bytes)}{dtype_text} − reserve {gigabytes(machine.reserve_bytes)}"
    )
    return Stat("Room for the cache", gigabytes(machine.pool_bytes), note)


def _prefix_stat(answer: Answer, usual: FormatRow) -> Stat:
    """Return the bytes that the shared prefix saves."""
    unshared_bytes = answer.concurrency * usual.bytes_per_request
    saved = unshared_bytes - usual.bytes_at_concurrency
    requests = counted(answer.concurrency, "request")
    if not answer.shared_prefix_tokens or answer.concurrency < 2:
        return Stat("Prefix reuse saves", NONE, "Give a shared prefix and more than one request at once.")
    note = f"{answer.shared_prefix_tokens:,} tokens of {requests} held once in {usual.kv_dtype}: {saved:,} bytes"
    return Stat("Prefix reuse saves", bytes_text(saved), note)


def _bytes_title(name: str, answer: Answer, usual: FormatRow) -> str:
    least = min(answer.rows, key=lambda row: row.bytes_per_token)
    if least.bytes_per_token == usual.bytes_per_token:
        return f"A token takes {usual.bytes_per_token:,} bytes in {usual.kv_dtype}, the least of these formats"
    times = usual.bytes_per_token / least.bytes_per_token
    than = f"{times:.2f} × less than {usual.kv_dtype}"
    return f"{least.kv_dtype} takes the least: {least.bytes_per_token:,} bytes a token, {than}"


def _fit_title(answer: Answer) -> str:
    fitting = [row for row in answer.rows if row.concurrency_fits]
    requests_text = f"{counted(answer.concurrency, 'request')} of {answer.context_tokens:,} tokens"
    verb = "fits" if answer.concurrency == 1 else "fit"
    if len(fitting) == len(answer.rows):
        return f"{requests_text} {verb} in every format"
    if not fitting:
        return f"{requests_text} {verb} in no format"
    unfitting = ", ".join(row.kv_dtype for row in answer.rows if not row.concurrency_fits)
    return f"{requests_text} {verb} in {len(fitting)} of {len(answer.rows)} formats, not in {unfitting}"


def _qualities(row: FormatRow, measured: Sequence[QualityResult]) -> Qualities:
    results = [quality_result for quality_result in measured if quality_result.kv_dtype == row.kv_dtype]
    return [
        (
            quality_result,
            ", ".join(filter(None, (f"on {quality_result.backend}", divergence_words(quality_result.figures)))),
        )
        for quality_result in results
    ]


def _notes(answer: Answer) -> tuple[str, ...]:
    notes = []
    if answer.machine is not None:
        notes.append(
            "Tokens a second are upper bounds, not measured: bandwidth over the weights and cache that a step reads."
        )
    if answer.hidden_size_formula is not None:
        notes.append(answer.hidden_size_formula.message)
    return (*notes, *answer.notes)
