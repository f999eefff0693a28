"""Row K1's process: our ops on a CPU and torch's contiguous attention, with as many threads as it was started with."""

import os
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels.formats import kv_format_named
from kernels.kv_write import kv_write
from kernels.paged_decode import paged_decode
from kernels.paged_prefill import paged_prefill
from tests.bench.answers import serve
from tests.bench.kernel_inputs import Contiguous, Shape, paged, places, scattered, vectors

CPU = torch.device("cpu")
Work = Callable[[], object]
Sides = Mapping[str, Work]


def sides(op: str, kv_format: str, shape: Shape) -> Sides:
    """Both sides' work; theirs is the same in float32, contiguous, and as torch does it fastest."""
    given = vectors(shape, CPU, torch.float32)
    if op == "kv_write":
        return _writing(kv_format, shape, given)
    inputs = paged(shape, kv_format_named(kv_format), given)
    attend = paged_decode if op == "paged_decode" else paged_prefill
    ours = lambda: attend(inputs.q, inputs.arena, inputs.table, 0, inputs.scales)  # noqa: E731
    return {"ours": ours, "theirs": _decoding(given) if shape.new == 1 else _prefilling(given, shape)}


def _decoding(given: Contiguous) -> Work:
    """A KV head's queries as so many queries of one head: on a CPU half the time of `enable_gqa`."""
    q = given.q.view(given.q.shape[0], given.keys.shape[1], -1, given.q.shape[-1])
    return lambda: scaled_dot_product_attention(q, given.keys, given.values)


def _prefilling(given: Contiguous, shape: Shape) -> Work:
    if shape.new == shape.context:
        return lambda: scaled_dot_product_attention(given.q, given.keys, given.values, is_causal=True, enable_gqa=True)
    mask = torch.ones(shape.new, shape.context, dtype=torch.bool).tril(shape.context - shape.new)
    return lambda: scaled_dot_product_attention(given.q, given.keys, given.values, attn_mask=mask, enable_gqa=True)


def _writing(kv_format: str, shape: Shape, given: Contiguous) -> Sides:
    """`new` tokens of one row; theirs copies them into tensors of their own."""
    inputs = paged(shape, kv_format_named(kv_format), given)
    tokens = range(shape.context - shape.new, shape.context)
    table = places(inputs.arena, inputs.layout, scattered(inputs.layout, 1, shape.pages())[0], tokens)
    keys, values = (side[0, :, -shape.new :].transpose(0, 1).contiguous() for side in (given.keys, given.values))
    kept = [torch.empty(shape.context, *side.shape[1:]) for side in (keys, values)]
    where = torch.tensor(tokens)

    def copy() -> None:
        for target, source in zip(kept, (keys, values), strict=True):
            target.index_copy_(0, where, source)

    return {"ours": lambda: kv_write(inputs.arena, table, 0, keys, values, inputs.scales), "theirs": copy}


class Kernels:
    """Answers `{"op", "format", "shape", "side", "calls"}` with the median of so many calls, in µs."""

    def __init__(self) -> None:
        self._asked: tuple[object, ...] = ()
        self._sides: Sides = {}

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        asked = (question["op"], question["format"], Shape(**question["shape"]))
        if asked != self._asked:
            self._asked, self._sides = asked, sides(*asked)
        return {"µs": median(_seconds(self._sides[question["side"]]) for _ in range(question["calls"])) * 1e6}


def _seconds(work: Work) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def prepared() -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], dict[str, Any]]]:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return {"threads": torch.get_num_threads(), "torch": str(torch.__version__)}, Kernels().answer


if __name__ == "__main__":
    serve(prepared)
