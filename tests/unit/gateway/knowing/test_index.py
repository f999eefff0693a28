"""What engines tell of their caches, against sets that are kept the plain way."""

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from engine_agent.contracts.block_events import BlockChange, Load, Page
from engine_agent.gateway.knowing.index import MOST_IN_BUCKET, STEP, Index, Marks

LOAD = Load(0, 0, 0, 0, 0, 0.0)
ROOTS = [bytes([number]) * 8 for number in range(3)]
FEW = [sha256(bytes([number])).digest()[:8] for number in range(12)]


def page(*changes: BlockChange, is_snapshot: bool = False) -> Page:
    return Page("boot", 1, is_snapshot, True, LOAD, changes)


def stored(root: bytes, *marks: bytes) -> BlockChange:
    return BlockChange("stored", "1", root, root, b"".join(marks))


def removed(root: bytes, *marks: bytes) -> BlockChange:
    return BlockChange("removed", "1", root, root, b"".join(marks))


def cleared(root: bytes) -> BlockChange:
    return BlockChange("cleared", "1", root, root, b"")


def marks_of(count: int, first: int = 0) -> list[bytes]:
    return [sha256(number.to_bytes(4, "big")).digest()[:8] for number in range(first, first + count)]


ROOT = st.sampled_from(ROOTS)
SOME = st.lists(st.sampled_from(FEW), min_size=1, max_size=6)
CHANGE = st.one_of(
    st.builds(lambda root, marks: stored(root, *marks), ROOT, SOME),
    st.builds(lambda root, marks: removed(root, *marks), ROOT, SOME),
    st.builds(cleared, ROOT),
)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.lists(CHANGE, max_size=4)), max_size=20))
def test_an_index_holds_what_plain_sets_would(pages: list[tuple[str, bool, list[BlockChange]]]) -> None:
    index, plain = Index(), {"a": {root: set[bytes]() for root in ROOTS}, "b": {root: set[bytes]() for root in ROOTS}}
    for agent, is_snapshot, changes in pages:
        index.apply(agent, page(*changes, is_snapshot=is_snapshot))
        for held in plain[agent].values() if is_snapshot else ():
            held.clear()
        for change in changes:
            told = {change.marks[at : at + 8] for at in range(0, len(change.marks), 8)}
            held = plain[agent][change.root]
            if change.kind == "stored":
                held |= told
            else:
                held -= told if change.kind == "removed" else set(held)
    for agent, roots in plain.items():
        assert index.blocks.get(agent, 0) == sum(map(len, roots.values()))
        for root, held in roots.items():
            assert [mark for mark in FEW if index.match(agent, root, mark)] == [mark for mark in FEW if mark in held]


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_match_ends_where_the_engine_holds_no_more(held: int, asked: int) -> None:
    index, marks = Index(), marks_of(40)
    if held:
        index.apply("a", page(stored(ROOTS[0], *marks[:held])))
    assert index.match("a", ROOTS[0], b"".join(marks[:asked])) == min(held, asked)
    assert index.match("a", ROOTS[1], b"".join(marks[:asked])) == 0
    assert index.match("b", ROOTS[0], b"".join(marks[:asked])) == 0


def test_many_blocks_are_spread_and_all_found_again() -> None:
    held, count = Marks(), 20 * MOST_IN_BUCKET
    marks = marks_of(count)
    assert all(held.add(mark) for mark in marks)
    assert not any(held.add(mark) for mark in marks)
    assert len(held) == count
    assert all(mark in held for mark in marks)
    assert not any(mark in held for mark in marks_of(count, first=count))
    assert all(held.discard(mark) for mark in marks[::2])
    assert [mark in held for mark in marks] == [False, True] * (count // 2)


def test_bytes_of_two_neighbours_are_no_block() -> None:
    held = Marks()
    one, two = b"\x00" * 4 + b"ABCD", b"EFGH" + b"\x00" * 4
    held.add(one)
    held.add(two)
    assert b"ABCDEFGH" not in held
    assert not held.discard(b"ABCDEFGH")
    held.add(b"ABCDEFGH")
    assert b"ABCDEFGH" in held


def test_a_snapshot_replaces_what_was_known_of_its_engine_alone() -> None:
    index, marks = Index(), marks_of(4)
    for agent in ("a", "b"):
        index.apply(agent, page(stored(ROOTS[0], *marks)))
    index.apply("a", page(stored(ROOTS[1], *marks[:2]), is_snapshot=True))
    assert index.match("a", ROOTS[0], b"".join(marks)) == 0
    assert index.match("a", ROOTS[1], b"".join(marks)) == 2
    assert index.match("b", ROOTS[0], b"".join(marks)) == 4


def test_more_blocks_than_may_be_are_not_kept() -> None:
    index, marks = Index(most_blocks=10), marks_of(30)
    index.apply("a", page(stored(ROOTS[0], *marks[:8])))
    index.apply("b", page(stored(ROOTS[0], *marks)))
    assert index.blocks == {"a": 8, "b": 2}
    index.apply("a", page(cleared(ROOTS[0])))
    index.apply("b", page(stored(ROOTS[0], *marks[2:])))
    assert index.blocks == {"a": 0, "b": 10}


def test_an_engine_that_is_forgotten_holds_nothing() -> None:
    index, marks = Index(), marks_of(4)
    index.apply("a", page(stored(ROOTS[0], *marks)))
    index.forget("a")
    assert index.match("a", ROOTS[0], b"".join(marks)) == 0
    assert index.blocks == {}


def test_a_large_page_is_taken_in_steps() -> None:
    index, marks = Index(), marks_of(5_000)
    steps = sum(1 for _ in index.changing("a", page(stored(ROOTS[0], *marks))))
    assert steps == 5_000 // STEP
    assert index.blocks == {"a": 5_000}
