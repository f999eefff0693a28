"""MOVE: what reads and writes pages without attending to them, beside a copy of as many bytes."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kernels.formats import KV_FORMATS
from kernels.fwht import fwht
from kernels.kv_write import kv_write
from kernels.page_checksum import page_checksum
from kernels.page_convert import page_convert
from kernels.page_copy import page_copy
from kernels.page_zero import page_zero
from kernels.scales import neutral_scales
from tests.bench import Bench
from tests.bench.gpu.checks import convertible, page_inputs
from tests.bench.gpu.clocks import Work, alternating
from tests.bench.gpu.figures import shares, terabytes_a_second
from tests.bench.gpu.registry import row
from tests.bench.gpu.setting import Setting, here, where
from tests.bench.kernel_inputs import Shape, places, scattered, vectors

FORMATS = ("bf16", "fp8", "int8", "k8v4", "int4", "nvfp4")
COPY = "copy"


@dataclass(frozen=True, slots=True)
class Move:
    """Work, and the bytes that it must read and write at least."""

    name: str
    moved_bytes: int
    work: Work


@row("MOVE", title="Ops that move pages: bytes read and written", beside="a copy of as many bytes")
def moving(bench: Bench) -> None:
    setting = here()
    for move in moves(setting):
        _beside_copy(bench, setting, move)
    bench.note(where())


def _beside_copy(bench: Bench, setting: Setting, move: Move) -> None:
    half, repetitions = move.moved_bytes // 2, bench.repetitions(setting.sizes.repetitions)
    source, target = (torch.zeros(half, dtype=torch.uint8, device=setting.device) for _ in "st")
    sides: dict[str, Work] = {move.name: move.work, COPY: lambda: target.copy_(source)}
    bench.step(move.name, 0, repetitions)
    taken = alternating(setting.clock, sides, repetitions, lambda k: bench.step(move.name, k, repetitions))
    ours, theirs = (terabytes_a_second(move.moved_bytes, taken[side]) for side in sides)
    bench.record(move.name, unit="TB/s", values=ours, parameters={"bytes": move.moved_bytes})
    bench.record(f"{move.name} ÷ {COPY}", unit="×", values=shares(ours, theirs))


def moves(setting: Setting) -> Iterator[Move]:
    for name in FORMATS:
        yield _writing(setting, name)
    for name in FORMATS[1:]:
        yield _converting(setting, name)
    yield _rotating(setting)
    arena, sources, targets = page_inputs(setting)
    size, count = setting.sizes.page_bytes, setting.sizes.pages
    yield Move("page_copy", 2 * count * size, lambda: page_copy(arena, sources, targets, size))
    yield Move("page_zero", count * size, lambda: page_zero(arena, targets, size))
    yield Move("page_checksum", count * size, lambda: page_checksum(arena, sources, size))


def _writing(setting: Setting, name: str) -> Move:
    head_size = setting.sizes.head_sizes[0]
    shape = Shape(1, setting.sizes.check_kv_heads, head_size, 1, setting.sizes.tokens_written)
    kv_format, given = KV_FORMATS[name], vectors(shape, setting.device, setting.dtype)
    layout = shape.layout(kv_format)
    arena = torch.zeros(shape.pages() * layout.page_bytes, dtype=torch.uint8, device=setting.device)
    table = places(arena, layout, scattered(layout, 1, shape.pages())[0], range(shape.context))
    keys, values = (side[0].transpose(0, 1).contiguous() for side in (given.keys, given.values))
    scales = neutral_scales(layout, setting.device).layer(0)
    moved = 2 * keys.numel() * keys.itemsize + shape.kv_bytes(kv_format)
    return Move(f"kv_write {name}", moved, lambda: kv_write(arena, table, 0, keys, values, scales))


def _converting(setting: Setting, name: str) -> Move:
    source, target = KV_FORMATS["bf16"], KV_FORMATS[name]
    arena, layouts, offsets = convertible(setting, source, target, setting.sizes.head_sizes[0])
    scales = [neutral_scales(layout, setting.device) for layout in layouts]
    moved = len(offsets[0]) * sum(layout.page_bytes for layout in layouts)

    def convert() -> None:
        page_convert(arena, layouts[0], offsets[0], layouts[1], offsets[1], *scales)

    return Move(f"page_convert bf16 to {name}", moved, convert)


def _rotating(setting: Setting) -> Move:
    head_size = setting.sizes.head_sizes[0]
    x = torch.randn(setting.sizes.vectors_rotated, head_size, device=setting.device, dtype=torch.bfloat16)
    return Move("fwht", 2 * x.numel() * x.itemsize, lambda: fwht(x))
