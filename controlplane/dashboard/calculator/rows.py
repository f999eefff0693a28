"""What the calculator answers, as its page words it: exact bytes, what fits of them, and what is only a bound. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.dashboard.frame.charts import bytes_text, value_text
from controlplane.dashboard.frame.words import counted
from controlplane.fleet.quality import DEFAULT
from kernels.calculator.answer import Answer, FormatRow, Machine
from kernels.calculator.question import Question
from kernels.formats import BASELINE
from kernels.shapes import ModelShape

DASH: Final = "–"
GB: Final = 10**9
VERDICTS = {
    "passed": ("passed", "ok"),
    "failed": ("failed", "bad"),
    "unresolved": ("left open", "warn"),
    "overridden": ("let through unmeasured", "warn"),
}


@dataclass(frozen=True, slots=True)
class Quality:
    """What was measured here of one format on the model, and of nothing else."""

    word: str
    tone: str
    more: str = ""


@dataclass(frozen=True, slots=True)
class FormatFacts:
    name: str
    is_usual: bool
    token_bytes: str
    token_size: str
    percent_of_largest: float
    ratio: str
    request_bytes: str
    request_size: str
    all_bytes: str
    all_size: str
    tokens_fit: str
    requests_fit: str
    fits: str
    fits_tone: str
    rate_one: str
    rate_all: str
    rate_full: str
    qualities: tuple[Quality, ...]


@dataclass(frozen=True, slots=True)
class Stat:
    label: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Counted:
    """Everything below the form."""

    headline: str
    stats: tuple[Stat, ...]
    rows: tuple[FormatFacts, ...]
    notes: tuple[str, ...]
    bytes_title: str
    fit_title: str
    requests: str
    has_machine: bool


def counted_rows(name: str, question: Question, answer: Answer, measured: Sequence[Mapping[str, str]]) -> Counted:
    """`measured`: results of the quality suite, as kv_dtype, verdict, backend and revision."""
    usual = _usual(answer.rows)
    most = max((row.bytes_per_token for row in answer.rows), default=0)
    return Counted(
        headline=_headline(name, answer, usual),
        stats=_stats(question.shape, answer, usual),
        rows=tuple(_facts(row, usual, most, measured) for row in answer.rows),
        notes=_notes(answer),
        bytes_title=_bytes_title(name, answer, usual),
        fit_title="" if answer.machine is None else _fit_title(answer),
        requests=counted(answer.concurrency, "request"),
        has_machine=answer.machine is not None,
    )


def gigabytes(number: int) -> str:
    return f"{number / GB:,.1f} GB"


def billions(number: int) -> str:
    """ "8.03 billion", or "3.2 million" where that says more."""
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
        return Stat("Room for the cache", DASH, "Choose an accelerator to see what fits.")
    said = f" ({machine.weights_dtype})" if machine.weights_dtype else ""
    note = (
        f"each: {gigabytes(machine.memory_bytes)} × {machine.memory_utilisation:g} − weights "
        f"{gigabytes(machine.weights_bytes)}{said} − reserve {gigabytes(machine.reserve_bytes)}"
    )
    return Stat("Room for the cache", gigabytes(machine.pool_bytes), note)


def _prefix_stat(answer: Answer, usual: FormatRow) -> Stat:
    """What all requests take, against what they would take if none found the others' prefix."""
    alone = answer.concurrency * usual.bytes_per_request
    saved = alone - usual.bytes_at_concurrency
    requests = counted(answer.concurrency, "request")
    if not answer.shared_prefix_tokens or answer.concurrency < 2:
        return Stat("Prefix reuse saves", DASH, "Give a shared prefix and more than one request at once.")
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
    asked = f"{counted(answer.concurrency, 'request')} of {answer.context_tokens:,} tokens"
    verb = "fits" if answer.concurrency == 1 else "fit"
    if len(fitting) == len(answer.rows):
        return f"{asked} {verb} in every format"
    if not fitting:
        return f"{asked} {verb} in no format"
    rest = ", ".join(row.kv_dtype for row in answer.rows if not row.concurrency_fits)
    return f"{asked} {verb} in {len(fitting)} of {len(answer.rows)} formats, not in {rest}"


def _facts(row: FormatRow, usual: FormatRow, most: int, measured: Sequence[Mapping[str, str]]) -> FormatFacts:
    rates = row.tokens_per_second
    return FormatFacts(
        name=row.kv_dtype,
        is_usual=row is usual,
        token_bytes=f"{row.bytes_per_token:,} B",
        token_size=_size(row.bytes_per_token),
        percent_of_largest=round(100 * row.bytes_per_token / most, 2) if most else 0,
        ratio=f"{row.times_smaller:.2f} × smaller than bf16"
        if row.kv_dtype != BASELINE
        else "what others compare with",
        request_bytes=f"{row.bytes_per_request:,} B",
        request_size=_size(row.bytes_per_request),
        all_bytes=f"{row.bytes_at_concurrency:,} B",
        all_size=_size(row.bytes_at_concurrency),
        tokens_fit=_count(row.tokens_that_fit),
        requests_fit=_count(row.requests_that_fit),
        fits="fits" if row.concurrency_fits else "does not fit",
        fits_tone="ok" if row.concurrency_fits else "bad",
        rate_one=_count(rates.one_request),
        rate_all=_count(rates.at_concurrency),
        rate_full=_count(rates.full_pool),
        qualities=_qualities(row.kv_dtype, measured),
    )


def _size(number: int) -> str:
    """Beside the exact bytes, where it says something else."""
    return bytes_text(number) if number >= 1024 else ""


def _count(number: float | None) -> str:
    return DASH if number is None else value_text("count", float(int(number)))


def _qualities(kv_dtype: str, measured: Sequence[Mapping[str, str]]) -> tuple[Quality, ...]:
    found = [one for one in measured if one["kv_dtype"] == kv_dtype]
    if not found:
        return (Quality("not measured here", "info"),)
    return tuple(
        Quality(*VERDICTS.get(one["verdict"], (one["verdict"], "info")), more=f"on {one['backend']}, {one['figures']}")
        if one["figures"]
        else Quality(*VERDICTS.get(one["verdict"], (one["verdict"], "info")), more=f"on {one['backend']}")
        for one in found
    )


def measured_facts(result: Any) -> dict[str, str]:
    """Of one result: what it says, with the number that decides."""
    low, high = (result.figures.get(f"byte_divergence_{end}") for end in ("low", "high"))
    has_numbers = isinstance(low, int | float) and isinstance(high, int | float)
    said = f"divergence {low:.2g} to {high:.2g} a byte" if has_numbers else ""
    return {"kv_dtype": result.kv_dtype, "verdict": result.verdict, "backend": result.backend, "figures": said}


def _notes(answer: Answer) -> tuple[str, ...]:
    notes = []
    if answer.machine is not None:
        notes.append(
            "Tokens a second are upper bounds, not measured: bandwidth over the weights and cache that a step reads."
        )
    if answer.hidden_size_formula is not None:
        notes.append(answer.hidden_size_formula.message)
    return (*notes, *answer.notes)
