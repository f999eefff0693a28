"""Block arithmetic against what everybody can check by hand."""

from hypothesis import given
from hypothesis import strategies as st

from engine_agent.divergence.branches import branchings
from engine_agent.divergence.marks import common, count, cut, marks_of
from engine_agent.divergence.reuse import best_matches, hit_tokens

WORDS = st.lists(st.integers(0, 2), max_size=24)
PROMPTS = st.lists(WORDS, max_size=9)


def packed(tokens: list[int]) -> bytes:
    return b"".join(one.to_bytes(4, "little") for one in tokens)


def begins_alike(one: list[int], other: list[int]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@given(WORDS, WORDS)
def test_what_two_have_in_common_is_what_a_loop_finds(one: list[int], other: list[int]) -> None:
    assert common(packed(one), packed(other)) == begins_alike(one, other)


@given(PROMPTS)
def test_hits_are_the_full_blocks_of_the_best_match_before(prompts: list[list[int]]) -> None:
    expected = 0
    for place, one in enumerate(prompts):
        expected += max((begins_alike(one, other) // 4 * 4 for other in prompts[:place]), default=0)
    assert hit_tokens(map(packed, prompts), 4) == expected


@given(PROMPTS)
def test_branchings_are_where_prompts_part(prompts: list[list[int]]) -> None:
    lines = [packed(one) for one in prompts]
    for one in branchings(lines):
        beginnings = {tuple(prompts[member][: one.depth]) for member in one.members}
        assert len(beginnings) == 1
        assert len(one.members) >= 2
        alike = [place for place, prompt in enumerate(prompts) if tuple(prompt[: one.depth]) in beginnings]
        assert list(one.members) == alike
    for place, (prompt, best) in enumerate(zip(prompts, best_matches(lines), strict=True)):
        assert best == max((begins_alike(prompt, other) for other in prompts[:place]), default=-1)


@given(WORDS, st.integers(0, 23), st.integers(1, 5))
def test_another_token_alters_its_own_mark_and_those_right_behind(tokens: list[int], at: int, shingle: int) -> None:
    other = [one if place != at else 9 for place, one in enumerate(tokens)]
    ours, theirs = (marks_of(packed(one), b"k" * 32, shingle=shingle) for one in (tokens, other))
    differing = {place for place in range(count(ours)) if cut(ours, place, place + 1) != cut(theirs, place, place + 1)}
    assert differing == {place for place in range(at, at + shingle) if at < len(tokens) and place < len(tokens)}


def test_without_the_key_marks_tell_nothing_of_tokens() -> None:
    tokens = packed([5, 6, 7, 8, 5, 6, 7, 8])
    assert marks_of(tokens, b"a" * 32) != marks_of(tokens, b"b" * 32)
    assert cut(marks_of(tokens, b"a" * 32), 3, 4) == cut(marks_of(tokens, b"a" * 32), 7, 8)
