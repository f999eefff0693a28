"""Tables: what a batch reads and writes, refused by name before any memory is touched."""

from typing import Any

import pytest
import torch

from kernels.errors import InvalidArgument
from kernels.tables import page_table, write_table
from tests.unit.kernels.making import make_layout, poisoned_arena

LAYOUT = make_layout("int8", layers=1, kv_heads=1, head_size=32)
SIZE = LAYOUT.page_bytes
ARENA = poisoned_arena(4 * SIZE)


def test_a_short_row_is_filled_up_with_its_own_first_page() -> None:
    table = page_table(ARENA, LAYOUT, [[SIZE, 0], [2 * SIZE]], [17, 3])

    assert table.pages.tolist() == [[SIZE, 0], [2 * SIZE, 2 * SIZE]]
    assert table.lengths.tolist() == [17, 3]
    assert (table.rows, table.longest, table.tokens, table.most_queries) == (2, 17, 2, 1)
    assert table.reach == 3 * SIZE


def test_only_the_pages_that_hold_tokens_are_read() -> None:
    table = page_table(ARENA, LAYOUT, [[0, SIZE, 2 * SIZE]], [16])

    assert table.pages.tolist() == [[0]]


def test_queries_begin_where_the_row_before_ends() -> None:
    table = page_table(ARENA, LAYOUT, [[0], [SIZE], [0]], [16, 5, 9], [4, 5, 1])

    assert table.queries.tolist() == [0, 4, 9, 10]
    assert (table.tokens, table.most_queries) == (10, 5)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"offsets": [[0]], "lengths": [0]}, "lengths"),
        ({"offsets": [[0]], "lengths": [-3]}, "lengths"),
        ({"offsets": [[0]], "lengths": [1.0]}, "lengths"),
        ({"offsets": [], "lengths": []}, "lengths"),
        ({"offsets": [[0], [0]], "lengths": [4]}, "lengths"),
        ({"offsets": [[0]], "lengths": [17]}, "offsets"),
        ({"offsets": [[-16]], "lengths": [1]}, "offsets"),
        ({"offsets": [[8]], "lengths": [1]}, "offsets"),
        ({"offsets": [[3 * SIZE + 16]], "lengths": [1]}, "offsets"),
        ({"offsets": [[2**62]], "lengths": [1]}, "offsets"),
        ({"offsets": [["0"]], "lengths": [1]}, "offsets"),
        ({"offsets": [None], "lengths": [1]}, "offsets"),
        ({"offsets": [bytes(16)], "lengths": [1]}, "offsets"),
        ({"offsets": [[2**64]], "lengths": [1]}, "offsets"),
        ({"offsets": [[0]], "lengths": [2**31]}, "lengths"),
        ({"offsets": [[0]], "lengths": [4], "query_counts": [0]}, "query_counts"),
        ({"offsets": [[0]], "lengths": [4], "query_counts": [5]}, "query_counts"),
        ({"offsets": [[0]], "lengths": [4], "query_counts": [1, 1]}, "lengths"),
    ],
)
def test_what_lies_outside_the_arena_or_makes_no_sense_is_refused(arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{name}: "):
        page_table(ARENA, LAYOUT, **arguments)


@pytest.mark.parametrize(
    ("pages", "slots", "name"),
    [
        ([0], [16], "slots"),
        ([0], [-1], "slots"),
        ([0], [0.5], "slots"),
        ([2**64], [0], "pages"),
        ([], [], "pages"),
        ([0, 0], [1], "pages"),
        ([0, 0], [1, 1], "slots"),
        ([4 * SIZE], [0], "pages"),
        ([24], [0], "pages"),
        ([0, 32], [1, 0], "pages"),
    ],
)
def test_a_place_that_is_none_or_taken_twice_is_refused(pages: list[int], slots: list[int], name: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{name}: "):
        write_table(ARENA, LAYOUT, pages, slots)


@pytest.mark.parametrize(
    "arena",
    [torch.zeros(4 * SIZE), torch.zeros(4, SIZE, dtype=torch.uint8), torch.zeros(8 * SIZE, dtype=torch.uint8)[::2],
     torch.zeros(4 * SIZE + 64, dtype=torch.uint8)[1:], torch.zeros(4 * SIZE + 64, dtype=torch.uint8)[8:]],
    ids=["float32", "two dimensions", "strided", "misaligned", "misaligned within its memory"],
)  # fmt: skip
def test_an_arena_that_is_not_flat_aligned_bytes_is_refused(arena: torch.Tensor) -> None:
    with pytest.raises(InvalidArgument, match=r"^arena: "):
        page_table(arena, LAYOUT, [[0]], [1])


def test_lengths_may_come_from_anywhere_as_long_as_they_are_whole() -> None:
    table = page_table(ARENA, LAYOUT, [[0]], torch.tensor([7]).tolist())

    assert type(table.longest) is int
    with pytest.raises(InvalidArgument, match=r"^lengths: 'x' "):
        page_table(ARENA, LAYOUT, [[0], [0]], [3, "x"])  # type: ignore[list-item]


def test_the_error_has_the_value_and_what_would_do() -> None:
    with pytest.raises(InvalidArgument, match=r"^offsets: 24 is not a multiple of 16 bytes$"):
        page_table(ARENA, LAYOUT, [[24]], [1])
