"""Everything there is to say of a question: rows of bytes, what fits, upper bounds, and what to beware of."""

from collections.abc import Callable

from kernels.calculator.answer import Answer, FormatRow, HiddenSizeFormula, KindBytes, Machine, Rates
from kernels.calculator.held import Held, can_store, size_of, up, vectors
from kernels.calculator.machines import machine_of, weights_read
from kernels.calculator.question import Question
from kernels.formats import BASELINE, BF16, KV_FORMATS, KvFormat
from kernels.layout import BLOCK_TOKENS
from kernels.shapes import Layers, ModelShape, refused


def calculate(question: Question) -> Answer:
    """Everything there is to say. Raises InvalidArgument where weights do not fit, or a format cannot be."""
    machine = None if question.accelerator is None else machine_of(question, question.accelerator)
    return Answer(
        context_tokens=question.context,
        concurrency=question.concurrency,
        shared_prefix_tokens=question.shared_prefix_tokens,
        tensor_parallel=question.tensor_parallel,
        respect_windows=question.respect_windows,
        block_tokens=BLOCK_TOKENS,
        hidden_size_formula=hidden_size_formula(question.shape),
        machine=machine,
        rows=tuple(_row(question, one, machine) for one in question.formats),
        notes=(*question.shape.notes, *question.notes, *_notes(question)),
    )


def hidden_size_formula(shape: ModelShape) -> HiddenSizeFormula | None:
    """What the usual formula says, and how wrong that is; None where it is right for its own reasons."""
    if shape.hidden_size is None or not shape.keeping:
        return None
    said = 2 * shape.layer_count * shape.hidden_size * BF16.bits // 8
    actual = sum(one.count * one.kv_heads * vectors(KV_FORMATS[BASELINE], one) for one in shape.keeping)
    is_assumed = _has_full_heads(shape)
    if said == actual and is_assumed:
        return None
    factor = said / actual
    wrong = "happens to say the same here, though" if said == actual else f"is {factor:.4g} × the truth:"
    why = _why_wrong(shape, is_assumed=is_assumed)
    message = f"2 × layers × hidden_size × 2 bytes = {said:,} bytes a token {wrong} {why}."
    return HiddenSizeFormula(said, actual, factor, message)


def _has_full_heads(shape: ModelShape) -> bool:
    """Whether all layers are alike and full, and their query heads make up the hidden size: what the formula takes."""
    first, *others = shape.layers
    is_alike = not others and first.kind == "full" and first.key_size == first.value_size
    return is_alike and first.query_heads * first.key_size == shape.hidden_size


def _why_wrong(shape: ModelShape, *, is_assumed: bool) -> str:
    if all(one.kind == "latent" for one in shape.layers):
        return f"this model has one latent vector of {shape.key_size} a layer"
    if is_assumed:
        return f"this model has {shape.kv_heads} KV heads, not {shape.query_heads}"
    return "this model's layers, heads and sizes are not what it assumes"


def _row(question: Question, kv_format: KvFormat, machine: Machine | None) -> FormatRow:
    if not can_store(kv_format, question.shape):
        sizes = f"a key of {question.shape.key_size} and a value of {question.shape.value_size} elements"
        raise refused("kv_dtypes", kv_format.name, f"able to store {sizes} in whole bytes and groups")
    whole_model, gpu = Held(question, kv_format, 1), Held(question, kv_format, question.tensor_parallel)
    layers = question.shape.layers
    first = next(iter(question.shape.keeping), None)
    fitting = None if machine is None else _fitting(gpu, machine.pool_bytes)
    bytes_per_token = whole_model.all_token_bytes()
    return FormatRow(
        kv_dtype=kv_format.name,
        is_offered=kv_format.is_offered,
        key_vector_bytes=size_of(kv_format.key, first.key_size) if first else 0,
        value_vector_bytes=size_of(kv_format.value, first.value_size) if first else 0,
        times_smaller=_ratio(Held(question, KV_FORMATS[BASELINE], 1).all_token_bytes(), bytes_per_token),
        bytes_per_token=bytes_per_token,
        bytes_per_token_per_gpu=gpu.all_token_bytes(),
        bytes_per_request=sum(map(whole_model.request_bytes, layers)),
        bytes_per_request_per_gpu=sum(map(gpu.request_bytes, layers)),
        residual_bytes_per_request=whole_model.residual_bytes(),
        bytes_at_concurrency=_together(whole_model, question.concurrency),
        bytes_at_concurrency_per_gpu=_together(gpu, question.concurrency),
        tokens_that_fit=None if machine is None else _tokens_that_fit(gpu, machine.pool_bytes),
        requests_that_fit=fitting,
        concurrency_fits=None if machine is None else _together(gpu, question.concurrency) <= machine.pool_bytes,
        tokens_per_second=_rates(gpu, machine, fitting),
        layer_kinds=tuple(_kind(whole_model, one) for one in layers),
    )


def _ratio(plain: int, ours: int) -> float:
    return plain / ours if ours else 1.0


def _together(held: Held, requests: int) -> int:
    return held.shared_bytes() + requests * held.own_bytes()


def _kind(held: Held, layers: Layers) -> KindBytes:
    return KindBytes(
        layers.kind,
        layers.count,
        layers.kv_heads,
        layers.window_tokens,
        held.token_bytes(layers),
        held.request_bytes(layers),
    )


def _tokens_that_fit(held: Held, pool: int) -> int | None:
    """In whole blocks that every layer keeps; None where no layer keeps any."""
    block = BLOCK_TOKENS * held.all_token_bytes()
    return pool // block * BLOCK_TOKENS if block else None


def _fitting(held: Held, pool: int) -> int | None:
    """Requests beside one another; None where a request holds nothing at all."""
    own = held.own_bytes()
    return max(0, (pool - held.shared_bytes()) // own) if own else None


def _rates(held: Held, machine: Machine | None, fitting: int | None) -> Rates:
    if machine is None:
        return Rates(None, None, None)
    rate = _rate_of(held, machine)
    question = held.question

    def bounded(requests: int | None) -> float | None:
        return rate(requests) if requests and (fitting is None or requests <= fitting) else None

    return Rates(bounded(1), bounded(question.concurrency), bounded(fitting))


def _rate_of(held: Held, machine: Machine) -> Callable[[int], float | None]:
    each = held.read_bytes()

    def rate(requests: int) -> float | None:
        read = weights_read(held.question, machine, requests) + requests * each
        return requests * machine.bandwidth_bytes_per_second / read if read else None

    return rate


def _notes(question: Question) -> list[str]:
    shape, notes = question.shape, list[str]()
    if shape.context_tokens is not None and question.context > shape.context_tokens:
        notes.append(f"The model was made for {shape.context_tokens:,} tokens; {question.context:,} were asked for.")
    if any(one.kind != "latent" and one.kv_heads % question.tensor_parallel for one in shape.keeping):
        notes.append(_copies(shape, question.tensor_parallel))
    if question.tensor_parallel > 1 and shape.attention == "MLA":
        notes.append("MLA has one vector a token and layer: every GPU holds a copy of it.")
    if any(size % 16 for one in shape.keeping for size in (one.key_size, one.value_size)):
        notes.append("Luminet's own pages want head sizes that are multiples of 16.")
    return notes


def _copies(shape: ModelShape, gpus: int) -> str:
    if gpus > shape.kv_heads:
        return f"{gpus} GPUs for {shape.kv_heads} KV heads: each GPU holds one, so some hold copies."
    return f"{shape.kv_heads} KV heads on {gpus} GPUs: the fullest holds {up(shape.kv_heads, gpus)}, and it decides."
