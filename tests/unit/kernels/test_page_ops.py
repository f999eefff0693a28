"""Copying, zeroing and summing up pages: both implementations against plain Python, and what is refused."""

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels.dispatch import Implementation
from kernels.errors import InvalidArgument
from kernels.page_checksum import PAGES_A_PROGRAM, page_checksum, splitmix64
from kernels.page_copy import copy_rounds, page_copy, page_copy_reference
from kernels.page_zero import page_zero

CAPACITY = 40_000
SIZES = (16, 48, 1_232, 16_384 + 16)  # one vector; not a power of two; a program and a bit
PERMUTED = (5, 0, 3, 9, 1, 7)  # in pages


def arena_of(capacity: int = CAPACITY, device: str = "cpu") -> Tensor:
    bytes_ = torch.randint(0, 256, (capacity,), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    return bytes_.to(device)


def words_of(arena: Tensor, offset: int, size_bytes: int) -> list[int]:
    raw = arena[offset : offset + size_bytes].numpy().tobytes()
    return [int.from_bytes(raw[at : at + 4], "little", signed=True) for at in range(0, size_bytes, 4)]


def multiplier(index: int) -> int:
    """Sebastiano Vigna's splitmix64.c, word for word, with its state at 0 before the first."""
    z = (index + 1) * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return (z ^ z >> 31) | 1


def checksum_in_python(words: Sequence[int]) -> int:
    total = sum((word + 1) * multiplier(index) for index, word in enumerate(words)) % 2**64
    return total - 2**64 if total >= 2**63 else total


# Copying


@pytest.mark.parametrize("size", SIZES[:3])
def test_pages_are_copied_and_nothing_else_is_touched(implementation: Implementation, size: int) -> None:
    arena = arena_of()
    expected = arena.clone()
    sources, targets = [32 + page * size for page in PERMUTED], [32 + (page + 12) * size for page in PERMUTED]
    page_copy_reference(expected, sources, targets, size, expected)
    page_copy(arena, sources, targets, size)
    assert torch.equal(arena, expected)
    assert not torch.equal(arena, arena_of())


def test_pages_larger_than_a_program_are_copied_whole(implementation: Implementation) -> None:
    arena, size = arena_of(), SIZES[-1]
    page_copy(arena, [16], [CAPACITY - size], size)
    assert torch.equal(arena[-size:], arena_of()[16 : 16 + size])


@pytest.mark.parametrize("size", SIZES[:3])
def test_pages_are_copied_into_another_arena(implementation: Implementation, size: int) -> None:
    arena, host = arena_of(), torch.zeros(CAPACITY // 2, dtype=torch.uint8)
    expected = host.clone()
    sources, targets = [page * size for page in PERMUTED], [0, size, 2 * size, 4 * size, 6 * size, 5 * size]
    page_copy_reference(arena, sources, targets, size, expected)
    page_copy(arena, torch.tensor(sources), torch.tensor(targets), size, into=host)
    assert torch.equal(host, expected)
    assert torch.equal(arena, arena_of())


def test_one_page_may_be_copied_to_many(implementation: Implementation) -> None:
    arena = arena_of()
    page_copy(arena, [0, 0, 0], [64, 192, 128], 64)
    assert all(torch.equal(arena[at : at + 64], arena[:64]) for at in (64, 128, 192))


def test_pages_side_by_side_in_both_places_are_one_copy() -> None:
    arena = arena_of()
    page_copy(arena, [160, 128, 0], [1_056, 1_024, 2_000], 32)
    assert torch.equal(arena[1_024:1_088], arena_of()[128:192])
    assert torch.equal(arena[2_000:2_032], arena_of()[:32])


@pytest.mark.parametrize(
    ("sources", "targets", "argument", "value"),
    [
        ([0, 64], [256, 256], "targets", 256),
        ([0, 64], [256, 256 + 48], "targets", 304),
        ([0, 64], [64, 256], "sources", 64),  # a chain: what would arrive at 256?
        ([0, 256], [256 + 48, 512], "sources", 256),
        ([0, 320], [256 + 48, 512], "sources", 320),
        ([0], [0], "sources", 0),
        ([0], [48], "sources", 0),
        ([48], [0], "sources", 48),
    ],
)
def test_what_would_depend_on_the_order_is_refused(
    sources: list[int], targets: list[int], argument: str, value: int
) -> None:
    assert_refused(lambda arena: page_copy(arena, sources, targets, 64), argument, value)


def test_another_view_of_the_same_memory_is_no_other_arena() -> None:
    arena = arena_of()
    with pytest.raises(InvalidArgument, match="sources: 1024 is not apart from every target by 64 bytes"):
        page_copy(arena, [1_024], [0], 64, into=arena[1_024:])
    page_copy(arena, [0], [0], 64, into=arena[1_024:])
    assert torch.equal(arena[1_024 : 1_024 + 64], arena[:64])


def test_targets_that_only_touch_are_fine(implementation: Implementation) -> None:
    page_copy(arena_of(), [0, 64, 128], [192, 256, 320], 64)


@given(pairs=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=12), size=st.sampled_from([16, 48]))
def test_rounds_leave_what_one_copy_after_the_other_leaves(pairs: list[tuple[int, int]], size: int) -> None:
    # Steps of 16 and pages of 48: neighbours overlap. A page that is copied onto itself is no copy.
    sources = [16 * source for source, target in pairs if abs(source - target) * 16 >= size]
    targets = [16 * target for source, target in pairs if abs(source - target) * 16 >= size]
    arena = arena_of(16 * 24)
    expected = arena.clone()
    page_copy_reference(expected, sources, targets, size, expected)
    rounds = copy_rounds(sources, targets, size)
    for one in rounds:
        page_copy(arena, sources[one], targets[one], size)
    assert torch.equal(arena, expected)
    assert [index for one in rounds for index in range(len(sources))[one]] == list(range(len(sources)))


def test_copies_that_have_no_order_are_one_round() -> None:
    assert copy_rounds([0, 16, 0], [32, 48, 64], 16) == [slice(0, 3)]
    assert copy_rounds([0, 32], [32, 48], 16) == [slice(0, 1), slice(1, 2)]  # read what was written
    assert copy_rounds([0, 32], [16, 0], 16) == [slice(0, 1), slice(1, 2)]  # written over what was read
    assert copy_rounds([], [], 16) == []


# Zeroing


@pytest.mark.parametrize("size", SIZES)
def test_pages_are_zeroed_and_nothing_else_is_touched(implementation: Implementation, size: int) -> None:
    arena = arena_of() | 1
    expected = arena.clone()
    for offset in (0, size + 16):
        expected[offset : offset + size] = 0
    page_zero(arena, [size + 16, 0], size)
    assert torch.equal(arena, expected)


def test_a_page_named_twice_and_pages_that_overlap_are_zero(implementation: Implementation) -> None:
    arena = arena_of() | 1
    page_zero(arena, [64, 64, 80], 32)
    assert arena.eq(0).nonzero().flatten().tolist() == list(range(64, 112))


# Checksums


@pytest.mark.parametrize("size", SIZES)
def test_a_checksum_is_the_documented_sum(implementation: Implementation, size: int) -> None:
    arena, offsets = arena_of(), [0, 16, CAPACITY - CAPACITY % 16 - size]
    expected = [checksum_in_python(words_of(arena, offset, size)) for offset in offsets]
    assert page_checksum(arena, offsets, size).tolist() == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (bytes(16), 5758235187685948128),
        (bytes([255]) * 16, 0),  # words of -1
        (bytes(range(32)), -4057851559220409924),
    ],
)
def test_checksums_that_never_change(implementation: Implementation, content: bytes, expected: int) -> None:
    arena = torch.tensor(list(content), dtype=torch.uint8)
    assert page_checksum(arena, [0], len(content)).tolist() == [expected]


def test_the_multipliers_are_those_of_splitmix64() -> None:
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]  # seed 0
    assert [number % 2**64 for number in splitmix64(4).tolist()] == published


def test_every_bit_of_a_page_counts() -> None:
    page = arena_of(256)
    flipped = page.repeat(256 * 8, 1)
    bits = torch.arange(256 * 8)
    flipped[bits, bits // 8] ^= (1 << (bits % 8)).to(torch.uint8)
    sums = page_checksum(torch.cat([page, flipped.flatten()]), [256 * row for row in range(256 * 8 + 1)], 256)
    assert len(set(sums.tolist())) == 256 * 8 + 1


def test_words_that_changed_places_are_seen() -> None:
    page = arena_of(4_096).view(torch.int32)
    swapped = page.clone()
    swapped[3], swapped[700] = page[700], page[3]
    moved = page.roll(1)
    arena = torch.cat([page, swapped, moved]).view(torch.uint8)
    assert len(set(page_checksum(arena, [0, 4_096, 8_192], 4_096).tolist())) == 3


def test_more_pages_than_a_program_takes_keep_their_order(implementation: Implementation) -> None:
    arena, size = arena_of(), 32
    offsets = [size * page for page in range(3 * PAGES_A_PROGRAM + 1)][::-1]
    assert page_checksum(arena, offsets, size).tolist() == [
        checksum_in_python(words_of(arena, offset, size)) for offset in offsets
    ]


# What all three refuse


OPS: dict[str, Callable[[Tensor, object, object], object]] = {
    "sources": lambda arena, offsets, size: page_copy(arena, offsets, [0], size),  # type: ignore[arg-type]
    "targets": lambda arena, offsets, size: page_copy(arena, [0], offsets, size),  # type: ignore[arg-type]
    "zero": lambda arena, offsets, size: page_zero(arena, offsets, size),  # type: ignore[arg-type]
    "checksum": lambda arena, offsets, size: page_checksum(arena, offsets, size),  # type: ignore[arg-type]
}


def assert_refused(act: Callable[[Tensor], object], argument: str, value: object) -> None:
    arena = arena_of()
    with pytest.raises(InvalidArgument) as refused:
        act(arena)
    assert (refused.value.argument, refused.value.value) == (argument, value)
    assert torch.equal(arena, arena_of())


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("offset", [8, -16, CAPACITY - CAPACITY % 16, CAPACITY - 16, 2**70, 1.0, "0", None, True])
def test_offsets_that_cannot_be_are_refused(name: str, offset: object) -> None:
    argument = name if name in ("sources", "targets") else "offsets"
    assert_refused(lambda arena: OPS[name](arena, [512, offset], 32), argument, offset)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("size", [0, -16, 8, 24, 16.0, True, None])
def test_sizes_that_cannot_be_are_refused(name: str, size: object) -> None:
    assert_refused(lambda arena: OPS[name](arena, [512], size), "size_bytes", size)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(
    "offsets", [torch.tensor([512.0]), torch.tensor([512], dtype=torch.int32), torch.tensor([[512]])], ids=str
)
def test_tensors_of_offsets_are_int64_and_flat(name: str, offsets: Tensor) -> None:
    argument = name if name in ("sources", "targets") else "offsets"
    found = f"{offsets.dtype} {tuple(offsets.shape)} on cpu"
    assert_refused(lambda arena: OPS[name](arena, offsets, 32), argument, found)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(
    "view",
    [
        lambda arena: arena[1:],
        lambda arena: arena[::2],
        lambda arena: arena.view(2, -1),
        lambda arena: arena.view(torch.int32),
    ],
    ids=["misaligned", "not contiguous", "not flat", "not bytes"],
)
def test_arenas_that_cannot_be_are_refused(name: str, view: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(InvalidArgument, match=r"^arena: "):
        OPS[name](view(arena_of()), [512], 32)


def test_what_is_wrong_with_the_other_arena_is_told_by_its_name() -> None:
    with pytest.raises(InvalidArgument, match=r"^into: "):
        page_copy(arena_of(), [512], [0], 32, into=arena_of()[1:])
    with pytest.raises(InvalidArgument, match=r"^targets: 32 is not the begin of 32 bytes within an arena of 48"):
        page_copy(arena_of(), [512], [32], 32, into=arena_of(48))


def test_as_many_targets_as_sources() -> None:
    assert_refused(lambda arena: page_copy(arena, [0, 16], [32], 16), "targets", 1)


def test_no_pages_are_nothing_to_do(implementation: Implementation) -> None:
    arena = arena_of()
    page_copy(arena, [], [], 16)
    page_zero(arena, torch.empty(0, dtype=torch.int64), 16)
    assert page_checksum(arena, [], 16).tolist() == []
    assert torch.equal(arena, arena_of())


# On a GPU, at real sizes

PAGE = 2**21
PAGES = 48


@pytest.mark.gpu
def test_real_pages_on_a_gpu_are_as_on_the_host() -> None:
    host = arena_of(PAGE * PAGES)
    arena = host.cuda()
    sources, targets = (
        [PAGE * page for page in range(0, PAGES // 2)],
        [PAGE * page for page in range(PAGES // 2, PAGES)],
    )
    page_copy(host, sources[::-1], targets, PAGE)
    page_copy(arena, sources[::-1], targets, PAGE)
    page_zero(host, sources[::3], PAGE)
    page_zero(arena, sources[::3], PAGE)
    assert torch.equal(arena.cpu(), host)
    assert torch.equal(
        page_checksum(arena, sources + targets, PAGE).cpu(), page_checksum(host, sources + targets, PAGE)
    )


@pytest.mark.gpu
@pytest.mark.parametrize("is_pinned", [True, False])
def test_pages_go_to_a_host_tier_and_come_back(is_pinned: bool) -> None:
    arena = arena_of(PAGE * PAGES, "cuda")
    host = torch.zeros(PAGE * PAGES, dtype=torch.uint8, pin_memory=is_pinned)
    sources, targets = [PAGE * page for page in range(PAGES)], [PAGE * page for page in range(PAGES)][::-1]
    page_copy(arena, sources, targets, PAGE, into=host)
    torch.cuda.synchronize()
    assert torch.equal(page_checksum(host, targets, PAGE), page_checksum(arena, sources, PAGE).cpu())
    arena.zero_()
    page_copy(host, targets, sources, PAGE, into=arena)
    assert torch.equal(arena.cpu(), arena_of(PAGE * PAGES))
