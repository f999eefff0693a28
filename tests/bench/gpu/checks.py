"""Every op against its reference, each with one number for how far they are apart.

Attention: the output's relative L2 error against float32 on what the pages hold, and the largest error of a
log-sum-exp. Queries, weights and the output are rounded to bf16 once each, which is 0.11 % of their size in the mean
and about 0.001 in a score; a wrong index, mask or scale makes errors of the size of the output. All other ops: the
share of what they store that differs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from kernels.dispatch import using
from kernels.formats import KV_FORMATS, KvFormat
from kernels.fwht import fwht, fwht_reference
from kernels.kv_write import kv_write, kv_write_reference
from kernels.layout import PageLayout
from kernels.page_checksum import page_checksum, page_checksum_reference
from kernels.page_convert import page_convert, page_convert_reference
from kernels.page_copy import page_copy, page_copy_reference
from kernels.page_zero import page_zero, page_zero_reference
from kernels.paged_decode import paged_decode, paged_decode_reference
from kernels.paged_prefill import paged_prefill, paged_prefill_reference
from kernels.scales import neutral_scales
from kernels.tables import page_table
from tests.bench.gpu.setting import Setting
from tests.bench.kernel_inputs import Shape, paged, places, scattered, vectors

OUTPUT_BOUND = 0.02  # of each vector; bfloat16 has two to three digits, and a context of thousands averages them out
SUM_BOUND = 0.02
EXACT = 0.0  # what is stored does not depend on who computes it
EVERY_SIZE = ("bf16", "fp8", "int8", "k8v4", "int4", "nvfp4")
BF16 = KV_FORMATS["bf16"]


@dataclass(frozen=True, slots=True)
class Check:
    """`errors`, one for each size, none of which may exceed `bound`."""

    name: str
    bound: float
    errors: tuple[float, ...]

    @property
    def is_passed(self) -> bool:
        """NaN is no error that is small enough."""
        return all(error <= self.bound for error in self.errors)


@dataclass(frozen=True, slots=True)
class Unit:
    """Checks of one kernel in one format. No two units compile the same kernel."""

    name: str
    run: Callable[[], Iterable[Check]]


def check_units(setting: Setting) -> list[Unit]:
    """All of them, those that take longest to compile first."""
    found: list[Unit] = []
    for kind, is_decoding in (("paged_prefill", False), ("paged_decode", True)):
        for kv_format in KV_FORMATS.values():
            checks = partial(_attention_checks, setting, kv_format, is_decoding=is_decoding)
            found.append(Unit(f"{kind} {kv_format.name}", checks))
    found += [Unit(f"kv_write {one.name}", partial(_write_checks, setting, one)) for one in KV_FORMATS.values()]
    for name, kv_format in KV_FORMATS.items():
        if name != "bf16":
            found.append(Unit(f"page_convert {name}", partial(_convert_checks, setting, BF16, kv_format)))
    return [*found, Unit("fwht", partial(_rotation_checks, setting)), Unit("pages", partial(_page_checks, setting))]


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Of the vector that is worst, by L2 norms: the means of a long context are small, and a norm over all would not
    notice that they are wrong."""
    difference = (found.float() - expected.float()).norm(dim=-1)
    return float((difference / expected.float().norm(dim=-1)).max())


def share_that_differs(found: Tensor, expected: Tensor) -> float:
    return float(torch.count_nonzero(found != expected)) / found.numel()


def _attention_checks(setting: Setting, kv_format: KvFormat, *, is_decoding: bool) -> Iterator[Check]:
    """Formats that differ little from others are compiled at one size only, which takes longest of all of it."""
    name = f"{'paged_decode' if is_decoding else 'paged_prefill'} {kv_format.name}"
    heads = setting.sizes.check_heads if kv_format.name in EVERY_SIZE else setting.sizes.check_heads[:1]
    errors = [_attention_errors(setting, kv_format, *one, is_decoding=is_decoding) for one in heads]
    yield Check(name, OUTPUT_BOUND, tuple(error for error, _ in errors))
    yield Check(f"{name}, log-sum-exp", SUM_BOUND, tuple(error for _, error in errors))


def _attention_errors(
    setting: Setting, kv_format: KvFormat, head_size: int, group: int, *, is_decoding: bool
) -> tuple[float, float]:
    """Of the output and of the log-sum-exp. All rows read one row's pages, up to their own length."""
    sizes = setting.sizes
    rows = [(length, 1) for length in sizes.check_lengths] if is_decoding else list(sizes.check_chunks)
    lengths, counts = [length for length, _ in rows], [count for _, count in rows]
    kv_heads = sizes.check_kv_heads
    shape = Shape(kv_heads * group, kv_heads, head_size, 1, max(lengths), sum(counts))
    dtype = torch.float32 if kv_format.name == "fp32" else setting.dtype
    inputs = paged(shape, kv_format, vectors(shape, setting.device, dtype))
    pages = scattered(inputs.layout, 1, shape.pages())[0]
    table = page_table(inputs.arena, inputs.layout, [pages] * len(rows), lengths, counts)
    op, reference = (paged_decode, paged_decode_reference) if is_decoding else (paged_prefill, paged_prefill_reference)
    given = (inputs.q, inputs.arena, table, 0, inputs.scales)
    with using("triton"):
        out, lse = op(*given)
    expected, expected_lse = reference(*given)
    return relative_error(out, expected), float((lse - expected_lse).abs().max())


def _write_checks(setting: Setting, kv_format: KvFormat) -> Iterator[Check]:
    errors = []
    for head_size in setting.sizes.head_sizes:
        shape = Shape(1, setting.sizes.check_kv_heads, head_size, 1, setting.sizes.tokens_written)
        layout, given = shape.layout(kv_format), vectors(shape, setting.device, setting.dtype)
        keys, values = (side[0].transpose(0, 1).contiguous() for side in (given.keys, given.values))
        arenas = [
            torch.zeros(shape.pages() * layout.page_bytes, dtype=torch.uint8, device=setting.device) for _ in "re"
        ]
        table = places(arenas[0], layout, scattered(layout, 1, shape.pages())[0], range(shape.context))
        scales = neutral_scales(layout, setting.device).layer(0)
        with using("triton"):
            kv_write(arenas[0], table, 0, keys, values, scales)
        kv_write_reference(arenas[1], table, 0, keys, values, scales)
        errors.append(share_that_differs(*arenas))
    yield Check(f"kv_write {kv_format.name}", EXACT, tuple(errors))


def _convert_checks(setting: Setting, source: KvFormat, target: KvFormat) -> Iterator[Check]:
    """There and, what came of that, back."""
    errors = []
    for head_size in setting.sizes.head_sizes:
        arena, layouts, offsets = convertible(setting, source, target, head_size)
        expected = arena.clone()
        for begin, end in ((0, 1), (1, 0)):
            scales = [neutral_scales(layouts[side], setting.device) for side in (begin, end)]
            given = (layouts[begin], offsets[begin], layouts[end], offsets[end])
            with using("triton"):
                page_convert(arena, *given, *scales)
            begins, ends = (torch.tensor(offsets[side], device=setting.device) for side in (begin, end))
            page_convert_reference(expected, layouts[begin], begins, layouts[end], ends, scales[0], scales[1])
            errors.append(share_that_differs(arena, expected))
            arena.copy_(expected)
    yield Check(f"page_convert {source.name} to {target.name} and back", EXACT, tuple(errors))


def convertible(
    setting: Setting, source: KvFormat, target: KvFormat, head_size: int
) -> tuple[Tensor, list[PageLayout], list[list[int]]]:
    """An arena with pages of the first format, and room behind them for as many of the second."""
    pages, kv_heads = setting.sizes.pages_converted, setting.sizes.check_kv_heads
    shape = Shape(1, kv_heads, head_size, 1, pages * 16)
    filled = paged(shape, source, vectors(shape, setting.device, torch.bfloat16))
    layouts = [filled.layout, shape.layout(target)]
    behind = filled.arena.numel()
    arena = torch.cat(
        [filled.arena, torch.zeros(pages * layouts[1].page_bytes, dtype=torch.uint8, device=setting.device)]
    )
    there = [behind + offset for offset in scattered(layouts[1], 1, pages)[0]]
    return arena, layouts, [scattered(layouts[0], 1, pages)[0], there]


def _rotation_checks(setting: Setting) -> Iterator[Check]:
    errors = []
    for head_size in setting.sizes.head_sizes:
        generator = torch.Generator(setting.device).manual_seed(0)
        x = torch.randn(setting.sizes.vectors_rotated, head_size, generator=generator, device=setting.device)
        for inverse in (False, True):
            with using("triton"):
                found = fwht(x, inverse)
            errors.append(share_that_differs(found, fwht_reference(x, inverse)))
    yield Check("fwht", EXACT, tuple(errors))


def _page_checks(setting: Setting) -> Iterator[Check]:
    size, count = setting.sizes.page_bytes, setting.sizes.pages
    arena, sources, targets = page_inputs(setting)
    expected = arena.clone()
    with using("triton"):
        page_copy(arena, sources, targets, size)
    page_copy_reference(expected, sources, targets, size, expected)
    yield Check("page_copy", EXACT, (share_that_differs(arena, expected),))
    with using("triton"):
        page_zero(arena, sources[: count // 2], size)
    page_zero_reference(expected, sources[: count // 2], size)
    yield Check("page_zero", EXACT, (share_that_differs(arena, expected),))
    with using("triton"):
        sums = page_checksum(arena, sources + targets, size)
    on_host = page_checksum_reference(expected.cpu(), sources + targets, size)
    yield Check("page_checksum", EXACT, (share_that_differs(sums.cpu(), on_host),))


def page_inputs(setting: Setting) -> tuple[Tensor, list[int], list[int]]:
    """Random bytes in twice as many pages, half of them sources and half targets."""
    size, count = setting.sizes.page_bytes, setting.sizes.pages
    arena = torch.empty(2 * count * size, dtype=torch.uint8, device=setting.device).random_(0, 256)
    return arena, _shuffled(size, range(count)), _shuffled(size, range(count, 2 * count))


def _shuffled(size: int, pages: Sequence[int]) -> list[int]:
    order = torch.randperm(len(pages), generator=torch.Generator().manual_seed(0)).tolist()
    return [pages[index] * size for index in order]
