"""What a GPU has for keys and values: its memory, less weights and reserve. Weights that do not fit are refused."""

from fractions import Fraction

from kernels.calculator.accelerators import Accelerator
from kernels.calculator.answer import Machine
from kernels.calculator.held import up
from kernels.calculator.question import MOST_GPUS, WEIGHT_BITS, Question
from kernels.errors import InvalidArgument
from kernels.shapes import refused


def machine_of(question: Question, accelerator: Accelerator) -> Machine:
    usable = int(accelerator.memory_bytes * Fraction(str(question.memory_utilisation)))
    weights = _weights(question)
    each = up(weights, question.tensor_parallel)
    pool = usable - each - question.reserve_bytes
    if pool < 0:
        raise _weights_refused(question, accelerator, usable, weights)
    return Machine(
        accelerator=accelerator.name,
        memory_bytes=accelerator.memory_bytes,
        bandwidth_bytes_per_second=float(accelerator.bandwidth_bytes_per_second),
        memory_utilisation=float(question.memory_utilisation),
        usable_bytes=usable,
        weights_dtype=None if question.weights_bytes is not None else _weights_dtype(question),
        weights_bytes=each,
        reserve_bytes=question.reserve_bytes,
        pool_bytes=pool,
    )


def _weights_dtype(question: Question) -> str:
    return question.weights_dtype or question.shape.weights_dtype


def _weights(question: Question) -> int:
    if question.weights_bytes is not None:
        return question.weights_bytes
    if question.shape.parameters is None:
        wanted = "there: this config's parameters cannot be counted, so give their number or weights_bytes"
        raise refused("parameters", None, wanted)
    return _at_least(question.shape.parameters.total * WEIGHT_BITS[_weights_dtype(question)] / 8)


def _at_least(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)


def _weights_refused(question: Question, accelerator: Accelerator, usable: int, weights: int) -> InvalidArgument:
    room = max(usable - question.reserve_bytes, 0)
    each = up(weights, question.tensor_parallel)
    where = f"{each:,} bytes of weights on each {accelerator.name} and {room:,} bytes there for them"
    would = _would_do(up(weights, room) if room else MOST_GPUS + 1, question.shape.query_heads)
    return refused("tensor_parallel", question.tensor_parallel, f"enough, with {where}; {would}")


def _would_do(least: int, heads: int) -> str:
    """Engines want GPUs that share the query heads evenly."""
    if least > (heads or MOST_GPUS):
        return "no number of them would do"
    even = next((number for number in range(least, heads + 1) if heads % number == 0), least)
    evenly = "" if even == least else f" ({even:,} to share {heads:,} heads evenly)"
    return f"the smallest number that would do is {least:,}{evenly}"


def weights_read(question: Question, machine: Machine, requests: int) -> float:
    """One GPU's in one step. Of experts those that so many tokens come to, were all of them equally liked."""
    sizes = question.shape.parameters
    if sizes is None:
        return float(machine.weights_bytes)
    share = sizes.active / sizes.total
    if requests > 1 and 0 < sizes.experts_per_token < sizes.experts:
        touched = sizes.experts * (1 - (1 - sizes.experts_per_token / sizes.experts) ** requests)
        more = (touched - sizes.experts_per_token) / (sizes.experts - sizes.experts_per_token)
        share += (1 - share) * more
    return machine.weights_bytes * share
