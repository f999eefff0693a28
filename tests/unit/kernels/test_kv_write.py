"""Writing keys and values into pages, in each implementation. In C: test_native_writing.py too."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.dispatch import Implementation, using
from kernels.errors import InvalidArgument
from kernels.formats import KV_FORMATS
from kernels.kv_write import kv_write
from kernels.layout import PageLayout
from kernels.places import Side, gather_bytes, section, vector_places
from kernels.rope import apply_rope
from kernels.scales import LayerScales, neutral_scales
from kernels.tables import Rope, WriteTable, write_table
from kernels.vectors import decode
from tests.kernels.matrix import IMPLEMENTATIONS, matrix
from tests.unit.kernels.making import POISON, make_layout, make_scales, poisoned_arena, scattered_pages


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def prepared(layout: PageLayout, tokens: int, first_slot: int = 5) -> tuple[Tensor, WriteTable]:
    """An arena, and places for so many tokens in a row, beginning within a page."""
    count = -(-(tokens + first_slot) // layout.block_tokens)
    pages, end = scattered_pages(layout, count)
    arena = poisoned_arena(end + 16)
    places = [divmod(token + first_slot, layout.block_tokens) for token in range(tokens)]
    return arena, write_table(arena, layout, [pages[page] for page, _ in places], [slot for _, slot in places])


def read(arena: Tensor, table: WriteTable, layer: int, side: Side, static: Tensor | None = None) -> Tensor:
    """What the tokens' slots say now, decoded."""
    layout, part = table.layout, section(table.layout, side)
    codes_at, scales_at = vector_places(layout, part, table.pages + layer * layout.layer_bytes, table.slots)
    codes, scales = gather_bytes(arena, codes_at, part.code_bytes), gather_bytes(arena, scales_at, part.scale_bytes)
    return decode(codes, scales, part.vector, layout.head_size, static)


def make_rope(tokens: int, head_size: int) -> Rope:
    angles = torch.outer(torch.arange(64.0), 1e4 ** (-torch.arange(head_size // 2) / (head_size // 2)))
    return Rope(angles.cos(), angles.sin(), torch.arange(tokens) * 3 + 1)


@matrix(
    {
        "kv_format": KV_FORMATS,
        "tokens, kv_heads, head_size": [(1, 1, 64), (15, 1, 128), (16, 2, 32), (17, 1, 80), (21, 3, 48)],
    },
    strength=1,  # the format decides how a vector is stored, the shape which vectors there are
    corners=[
        ("int4", (17, 1, 80)),  # two pages, a rotation in blocks of 64 and 16
        ("k8v4", (21, 3, 48)),
        ("nvfp4", (16, 2, 32)),  # a whole block of tokens
        ("int8", (1, 1, 64)),
        ("fp8", (15, 1, 128)),
    ],
)
def test_torch_and_triton_write_the_same_bytes(kv_format: str, tokens: int, kv_heads: int, head_size: int) -> None:
    layout = make_layout(kv_format, layers=2, kv_heads=kv_heads, head_size=head_size)
    scales, rope = make_scales(layout).layer(1), make_rope(tokens, head_size)
    keys, values = normal(tokens, kv_heads, head_size) * 3, normal(tokens, kv_heads, head_size, seed=1)
    arena, table = prepared(layout, tokens)
    other = arena.clone()

    with using("torch"):
        kv_write(arena, table, 1, keys.bfloat16(), values.bfloat16(), scales, rope)
    with using("triton"):
        kv_write(other, table, 1, keys.bfloat16(), values.bfloat16(), scales, rope)

    assert torch.equal(arena, other)


def test_nothing_but_the_tokens_own_slots_is_touched(each_implementation: Implementation) -> None:
    layout = make_layout("k8v4", layers=3, kv_heads=2, head_size=32)
    arena, table = prepared(layout, 7)
    kv_write(arena, table, 1, normal(7, 2, 32), normal(7, 2, 32), neutral_scales(layout).layer(1))

    touched = torch.zeros_like(arena, dtype=torch.bool)
    for side in ("key", "value"):
        part = section(layout, side)
        codes_at, scales_at = vector_places(layout, part, table.pages + layout.layer_bytes, table.slots)
        for places, size in ((codes_at, part.code_bytes), (scales_at, part.scale_bytes)):
            touched[(places.unsqueeze(-1) + torch.arange(size)).flatten()] = True
    assert int(touched.sum()) == 7 * layout.token_bytes // layout.layers
    assert bool((arena[~touched] == POISON).all())


def test_fp32_pages_hold_the_very_numbers(each_implementation: Implementation) -> None:
    layout = make_layout("fp32")
    arena, table = prepared(layout, 20)
    keys, values = normal(20, 2, 32), normal(20, 2, 32, seed=1)

    kv_write(arena, table, 0, keys, values, make_scales(layout).layer(0))

    assert torch.equal(read(arena, table, 0, "key"), keys)
    assert torch.equal(read(arena, table, 0, "value"), values)


@matrix(
    {
        "poison": [float("nan"), float("inf"), float("-inf")],
        "kv_format": ["bf16", "fp8", "int8", "int4", "nvfp4"],
        "each_implementation": IMPLEMENTATIONS["each_implementation"],
    }
)
def test_a_vector_that_is_not_finite_is_counted_and_stored_as_zeros(
    kv_format: str, poison: float, each_implementation: Implementation
) -> None:
    layout = make_layout(kv_format)
    arena, table = prepared(layout, 4)
    keys, values = normal(4, 2, 32), normal(4, 2, 32, seed=1)
    keys[1, 0, 5] = poison
    values[3, 1, :2] = poison
    scales = neutral_scales(layout).layer(0)

    refused = kv_write(arena, table, 0, keys, values, scales)

    assert refused.tolist() == [0, 1, 0, 2]
    for side, token, head in (("key", 1, 0), ("value", 3, 1)):
        kept = read(arena, table, 0, side)  # type: ignore[arg-type]
        assert not kept[token, head].any()
        assert bool(kept.isfinite().all())
        kept[token, head] = 1.0
        assert bool(kept.any(dim=-1).all()), "only that vector was refused"


def test_refusals_add_up_over_the_layers(each_implementation: Implementation) -> None:
    layout = make_layout("int8")
    arena, table = prepared(layout, 3)
    refused = torch.zeros(3, dtype=torch.int32)
    values = torch.full((3, 2, 32), float("nan"))
    values[0] = 1.0
    for layer in range(2):
        assert (
            kv_write(
                arena, table, layer, normal(3, 2, 32), values, neutral_scales(layout).layer(layer), refused=refused
            )
            is refused
        )

    assert refused.tolist() == [0, 128, 128]


@pytest.mark.filterwarnings("ignore:overflow encountered")  # of the interpreter's numpy, and what is meant to happen
def test_what_overflows_on_its_way_through_rope_is_refused_too(each_implementation: Implementation) -> None:
    layout = make_layout("bf16", kv_heads=1)
    arena, table = prepared(layout, 1)
    keys = torch.full((1, 1, 32), 3.3e38)
    rope = Rope(torch.full((1, 16), 0.8), torch.full((1, 16), 0.6), torch.zeros(1, dtype=torch.int64))

    refused = kv_write(arena, table, 0, keys, keys, neutral_scales(layout).layer(0), rope)

    assert refused.tolist() == [16]  # 0.8 + 0.6 of it in the second half


def test_rope_fused_is_rope_and_then_the_write(each_implementation: Implementation) -> None:
    layout = make_layout("fp32", kv_heads=2, head_size=32)
    keys, rope = normal(9, 2, 32), make_rope(9, 32)
    arena, table = prepared(layout, 9)
    apart, other = prepared(layout, 9)
    scales = neutral_scales(layout).layer(0)

    kv_write(arena, table, 0, keys, keys, scales, rope)
    kv_write(apart, other, 0, apply_rope(keys, rope), keys, scales)

    assert torch.equal(arena, apart)


def test_rope_turns_pairs_by_their_positions_angle() -> None:
    x = torch.zeros(1, 1, 4)
    x[0, 0] = torch.tensor([1.0, 0.0, 0.0, 2.0])
    angle = torch.tensor([[0.0, 0.0], [torch.pi / 2, torch.pi]])
    turned = apply_rope(x, Rope(angle.cos(), angle.sin(), torch.tensor([1])))

    assert torch.allclose(turned[0, 0], torch.tensor([0.0, 0.0, 1.0, -2.0]), atol=1e-6)


def test_the_mean_of_the_keys_is_taken_off_what_is_quantised_and_off_nothing_else(
    each_implementation: Implementation,
) -> None:
    keys = normal(6, 2, 32) + 5
    for kv_format, is_centred in (("int8", True), ("bf16", False)):
        layout = make_layout(kv_format)
        arena, table = prepared(layout, 6)
        scales = LayerScales(torch.ones(2), torch.ones(2), torch.full((2, 32), 5.0))
        kv_write(arena, table, 0, keys, keys, scales)
        kept = read(arena, table, 0, "key")
        assert (kept - (keys - 5 if is_centred else keys)).abs().max() < 0.05, kv_format
        assert (read(arena, table, 0, "value") - keys).abs().max() < 0.1, kv_format


def test_keys_may_be_a_slice_of_a_fused_projection(each_implementation: Implementation) -> None:
    layout = make_layout("int8")
    fused = normal(5, 4 * 32 + 2 * 2 * 32)
    keys, values = fused[:, 128:192].view(5, 2, 32), fused[:, 192:].view(5, 2, 32)
    arena, table = prepared(layout, 5)
    plain, _ = prepared(layout, 5)
    scales = neutral_scales(layout).layer(0)

    kv_write(arena, table, 0, keys, values, scales)
    kv_write(plain, table, 0, keys.contiguous(), values.contiguous(), scales)

    assert torch.equal(arena, plain)


def test_keys_of_one_head_may_have_any_stride_there(each_implementation: Implementation) -> None:
    layout = make_layout("int8", kv_heads=1)
    arena, table = prepared(layout, 5)
    plain, _ = prepared(layout, 5)
    vectors, scales = normal(1, 5, 32).transpose(0, 1), neutral_scales(layout).layer(0)

    kv_write(arena, table, 0, vectors, vectors, scales)
    kv_write(plain, table, 0, vectors.contiguous(), vectors.contiguous(), scales)

    assert torch.equal(arena, plain)


@pytest.mark.gpu
@pytest.mark.parametrize("kv_format", KV_FORMATS)
@pytest.mark.parametrize(("kv_heads", "head_size"), [(8, 64), (8, 80), (8, 128), (4, 256)])
def test_a_long_chunk_on_a_gpu_is_written_as_on_the_host(kv_format: str, kv_heads: int, head_size: int) -> None:
    layout = make_layout(kv_format, layers=2, kv_heads=kv_heads, head_size=head_size)
    tokens = 4097
    scales = make_scales(layout)
    angles = torch.outer(torch.arange(8192.0), 1e4 ** (-torch.arange(head_size // 2) / (head_size // 2)))
    rope = Rope(angles.cos(), angles.sin(), torch.arange(tokens))
    vectors = [normal(tokens, kv_heads, head_size, seed=seed).bfloat16() for seed in (0, 1)]
    arena, table = prepared(layout, tokens)
    on_gpu = arena.cuda()
    there = write_table(on_gpu, layout, table.pages.tolist(), table.slots.tolist())

    kv_write(arena, table, 1, vectors[0], vectors[1], scales.layer(1), rope)
    turned = Rope(rope.cos.cuda(), rope.sin.cuda(), rope.positions.cuda())
    kv_write(on_gpu, there, 1, vectors[0].cuda(), vectors[1].cuda(), scales.to("cuda").layer(1), turned)

    assert torch.equal(on_gpu.cpu(), arena)


WRONG: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "keys of whole numbers": ("keys", lambda a: a["keys"].int()),
    "values in float64": ("values", lambda a: a["values"].double()),
    "a token too many": ("keys", lambda a: normal(6, 2, 32)),
    "another head size": ("values", lambda a: normal(5, 2, 64)),
    "heads that are not side by side": ("keys", lambda a: normal(5, 32, 2).transpose(1, 2)),
    "a layer there is not": ("layer", lambda a: 2),
    "a negative layer": ("layer", lambda a: -1),
    "a smaller arena": ("arena", lambda a: a["arena"][: a["table"].reach - 16]),
    "scales of other heads": ("scales.key", lambda a: LayerScales(torch.ones(3), torch.ones(3))),
    "scales in float64": ("scales.value", lambda a: LayerScales(torch.ones(2), torch.ones(2).double())),
    "scales that are strided": ("scales.key", lambda a: LayerScales(torch.ones(4)[::2], torch.ones(2))),
    "a counter that is strided": ("refused", lambda a: torch.zeros(5, 2, dtype=torch.int32)[:, 0]),
    "a shorter table of sines": ("rope.sin", lambda a: Rope(make_rope(5, 32).cos, torch.zeros(4, 16), torch.arange(5))),
    "tables of no positions": ("rope.cos", lambda a: Rope(torch.zeros(0, 16), torch.zeros(0, 16), torch.arange(5))),
    "means of another size": (
        "scales.key_mean",
        lambda a: LayerScales(torch.ones(2), torch.ones(2), torch.ones(2, 16)),
    ),
    "a counter of another dtype": ("refused", lambda a: torch.zeros(5)),
    "rope for another head size": ("rope.cos", lambda a: make_rope(5, 64)),
    "a position beyond the table": ("rope.positions", lambda a: Rope(*_rope_beyond())),
}


def _rope_beyond() -> tuple[Tensor, Tensor, Tensor]:
    rope = make_rope(5, 32)
    return rope.cos, rope.sin, torch.tensor([0, 1, 2, 3, 64])


def test_a_wrong_argument_is_named_and_nothing_is_written(
    each_implementation: Implementation, subtests: pytest.Subtests
) -> None:
    for case, (name, wrong) in WRONG.items():
        with subtests.test(msg=case):
            assert_refused(name, wrong)


def assert_refused(name: str, wrong: Callable[[dict[str, Any]], object]) -> None:
    layout = make_layout("int8")
    arena, table = prepared(layout, 5)
    arguments: dict[str, Any] = {
        "arena": arena, "table": table, "layer": 0, "keys": normal(5, 2, 32), "values": normal(5, 2, 32),
        "scales": neutral_scales(layout).layer(0), "rope": None, "refused": None,
    }  # fmt: skip
    arguments[name.split(".")[0]] = wrong(arguments)

    with pytest.raises(InvalidArgument, match=rf"^{name}: "):
        kv_write(**arguments)
    assert bool((arena == POISON).all())
