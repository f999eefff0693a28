"""Pages written anew in another format."""

from itertools import product

import pytest
import torch
from torch import Tensor

from kernels.dispatch import Implementation, using
from kernels.errors import InvalidArgument
from kernels.formats import KV_FORMATS
from kernels.layout import PageLayout
from kernels.page_convert import SIDES, page_convert
from kernels.places import Side, gather_bytes, section, vector_places
from kernels.scales import ScaleSet, neutral_scales
from kernels.vectors import decode
from tests.kernels.matrix import IMPLEMENTATIONS, matrix
from tests.unit.kernels.making import Filled, fill, make_layout, make_scales, poisoned_arena, scattered_pages


def filled(layout: PageLayout, scales: ScaleSet, target: PageLayout) -> tuple[Filled, list[int]]:
    """Two pages, all slots written, and room for two of the other layout behind them."""
    size = 4 * (layout.page_bytes + target.page_bytes)
    made = fill(layout, [32], scales=scales, arena=poisoned_arena(size))
    begin = max(made.offsets[0]) + layout.page_bytes
    return made, scattered_pages(target, 2, seed=5, begin=begin)[0]


@matrix(
    {"source": ["bf16", "fp8", "int4", "nvfp4"], "target": KV_FORMATS},
    strength=1,  # a source is read and a target is written through float32, each without knowing the other
    corners=[
        ("int4", "nvfp4"),  # turned back, then put into groups
        ("nvfp4", "int4"),
        ("fp8", "k8v4"),
        ("bf16", "bf16"),  # a copy
    ],
)
def test_both_implementations_write_the_same_bytes(source: str, target: str) -> None:
    one, other = make_layout(source, head_size=32), make_layout(target, head_size=32)
    scales, target_scales = make_scales(one), make_scales(other, seed=7)
    made, pages = filled(one, scales, other)
    again = made.arena.clone()

    page_convert(made.arena, one, made.offsets[0], other, pages, scales, target_scales)
    with using("triton"):
        page_convert(again, one, made.offsets[0], other, pages, scales, target_scales)

    assert torch.equal(made.arena, again)


@matrix(
    {"target": KV_FORMATS, "implementation": IMPLEMENTATIONS["implementation"]},
    strength=1,  # that both write the same bytes, in each format, is tested above
    corners=[("k8v4", "triton"), ("nvfp4", "triton"), ("int4", "torch")],
)
def test_from_fp32_it_writes_what_kv_write_writes(target: str, implementation: Implementation) -> None:
    one, other = make_layout("fp32", head_size=48), make_layout(target, head_size=48)
    scales = make_scales(other)
    made, pages = filled(one, neutral_scales(one), other)
    direct = fill(other, [32], scales=scales)

    page_convert(made.arena, one, made.offsets[0], other, pages, neutral_scales(one), scales)

    for page, expected in zip(pages, direct.offsets[0], strict=True):
        assert torch.equal(
            made.arena[page : page + other.page_bytes], direct.arena[expected : expected + other.page_bytes]
        )


def test_there_and_back_through_fp32_changes_nothing(implementation: Implementation) -> None:
    one, other = make_layout("fp8"), make_layout("fp32")
    scales = neutral_scales(one)
    made, pages = filled(one, scales, other)
    before = made.arena.clone()

    page_convert(made.arena, one, made.offsets[0], other, pages, scales, neutral_scales(other))
    page_convert(made.arena, other, pages, one, made.offsets[0], neutral_scales(other), scales)

    begin, end = min(made.offsets[0]), max(made.offsets[0]) + one.page_bytes
    assert torch.equal(made.arena[begin:end], before[begin:end])


@matrix(
    {
        "source": ["bf16", "fp8", "int8", "int4", "nvfp4"],
        "target": ["fp32", "bf16", "int8", "int4"],
        "implementation": IMPLEMENTATIONS["implementation"],
    },
    corners=[("nvfp4", "int4", "triton"), ("fp8", "bf16", "triton")],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy, of what nobody wrote
def test_slots_that_nobody_wrote_bring_no_nan_into_the_target(
    source: str, target: str, implementation: Implementation
) -> None:
    one, other = make_layout(source), make_layout(target)
    scales, end = neutral_scales(one), 3 * (one.page_bytes + other.page_bytes)
    made = fill(one, [3], arena=poisoned_arena(end))
    page = one.page_bytes * 2

    page_convert(made.arena, one, made.offsets[0], other, [page], scales, scales)

    for layer in range(other.layers):
        for side in SIDES:
            read = all_vectors(made.arena, other, page, layer, side)
            assert bool(read.isfinite().all())


def all_vectors(arena: Tensor, layout: PageLayout, page: int, layer: int, side: Side) -> Tensor:
    part = section(layout, side)
    begin = torch.tensor([page + layer * layout.layer_bytes])
    codes_at, scales_at = vector_places(layout, part, begin.unsqueeze(-1), torch.arange(layout.block_tokens))
    codes, scales = gather_bytes(arena, codes_at, part.code_bytes), gather_bytes(arena, scales_at, part.scale_bytes)
    return decode(codes, scales, part.vector, layout.head_size)


def test_key_means_of_another_size_are_refused(implementation: Implementation) -> None:
    one, other = make_layout("int8"), make_layout("int4")
    scales = make_scales(make_layout("int8", head_size=16))
    arena = poisoned_arena(4 * one.page_bytes)

    with pytest.raises(InvalidArgument, match=r"^source_scales: "):
        page_convert(arena, one, [0], other, [2 * one.page_bytes], scales, scales)


@pytest.mark.gpu
@pytest.mark.parametrize(("source", "target"), list(product(["bf16", "fp8", "int8", "int4", "nvfp4"], KV_FORMATS)))
def test_pages_of_an_8b_model_on_a_gpu_are_converted_as_on_the_host(source: str, target: str) -> None:
    one, other = (make_layout(name, layers=4, kv_heads=8, head_size=128) for name in (source, target))
    scales, target_scales = make_scales(one), make_scales(other, seed=7)
    made, pages = filled(one, scales, other)
    on_gpu = made.arena.cuda()

    page_convert(made.arena, one, made.offsets[0], other, pages, scales, target_scales)
    page_convert(on_gpu, one, made.offsets[0], other, pages, scales.to("cuda"), target_scales.to("cuda"))

    assert torch.equal(on_gpu.cpu(), made.arena)


def test_targets_on_sources_or_on_each_other_are_refused(implementation: Implementation) -> None:
    one, other = make_layout("int8"), make_layout("int4")
    scales = neutral_scales(one)
    made, pages = filled(one, scales, other)
    before = made.arena.clone()

    for wrong in (
        [made.offsets[0][0] + 16, pages[1]],
        [pages[0], pages[0]],
        [pages[0], pages[0] + 16],
        [made.offsets[0][1], pages[1]],
    ):
        with pytest.raises(InvalidArgument, match=r"^target_pages: "):
            page_convert(made.arena, one, made.offsets[0], other, wrong, scales, scales)
    assert torch.equal(made.arena, before)


def test_one_source_may_go_to_two_targets(implementation: Implementation) -> None:
    one, other = make_layout("int8"), make_layout("int4")
    scales = neutral_scales(one)
    made, pages = filled(one, scales, other)

    page_convert(made.arena, one, [made.offsets[0][0]] * 2, other, pages, scales, scales)

    first, second = (made.arena[page : page + other.page_bytes] for page in pages)
    assert torch.equal(first, second)


def test_models_that_differ_and_pages_outside_are_refused(implementation: Implementation) -> None:
    one, other = make_layout("int8"), make_layout("int4")
    scales = neutral_scales(one)
    arena: Tensor = poisoned_arena(4 * one.page_bytes)
    with pytest.raises(InvalidArgument, match=r"^target\.head_size: "):
        page_convert(arena, one, [0], make_layout("int4", head_size=64), [one.page_bytes], scales, scales)
    with pytest.raises(InvalidArgument, match=r"^source_pages: "):
        page_convert(arena, one, [4 * one.page_bytes], other, [0], scales, scales)
    with pytest.raises(InvalidArgument, match=r"^target_pages: "):
        page_convert(arena, one, [0], other, [], scales, scales)
    with pytest.raises(InvalidArgument, match=r"^target_scales: "):
        page_convert(arena, one, [0], other, [2 * one.page_bytes], scales, neutral_scales(make_layout(layers=3)))


def test_no_pages_are_no_work(implementation: Implementation) -> None:
    one, other = make_layout("int8"), make_layout("int4")
    arena = poisoned_arena(one.page_bytes)

    page_convert(arena, one, [], other, [], neutral_scales(one), neutral_scales(other))

    assert bool((arena == 0xFF).all())
