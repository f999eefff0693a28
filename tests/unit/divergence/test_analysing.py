"""What varies is found where it was put, against prompts whose makers know."""

import random
from itertools import count as numbers

from hypothesis import given, settings
from hypothesis import strategies as st

from engine_agent.divergence.analysing import Sample, analyse
from engine_agent.divergence.findings import Analysis
from engine_agent.divergence.marks import marks_of
from engine_agent.divergence.reuse import hit_tokens

KEY = b"k" * 32
FRESH = numbers(1_000)


def fresh(length: int) -> list[int]:
    """Tokens that nobody else has."""
    return [next(FRESH) for _ in range(length)]


def packed(tokens: list[int]) -> bytes:
    return b"".join(one.to_bytes(4, "little") for one in tokens)


def analysed(prompts: list[list[int]], *, shingle: int = 4) -> Analysis:
    return analyse([Sample(marks_of(packed(one), KEY, shingle=shingle)) for one in prompts], shingle=shingle)


def test_a_volatile_part_is_found_where_it_is_and_what_it_costs_is_told() -> None:
    head, tail = fresh(37), fresh(400)
    prompts = [head + fresh(6) + tail + fresh(20) for _ in range(20)]
    (one,) = analysed(prompts).findings
    assert (one.token, one.length_tokens, one.share, one.recurs) == (37, 6, 19 / 20, 1.0)
    assert (one.distinct, one.seen) == (20, 20)
    tokens = sum(map(len, prompts))
    assert one.hit_ratio_now == 19 * 32 / tokens
    assert one.hit_ratio_then == 19 * 432 / tokens


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 60),
    st.lists(st.tuples(st.integers(1, 40), st.integers(40, 200)), min_size=1, max_size=3),
    st.integers(3, 12),
    st.sampled_from([1, 4]),
)
def test_every_volatile_part_is_found_in_order(
    head: int, parts: list[tuple[int, int]], many: int, shingle: int
) -> None:
    """However long each is in each prompt: what comes behind is found again by what it is."""
    beginning, stable = fresh(head), [fresh(length) for _, length in parts]
    chance = random.Random(head * 1000 + many)
    prompts, places = [], list[list[int]]()
    for _ in range(many):
        prompt, at = list(beginning), []
        for (longest, _), following in zip(parts, stable, strict=True):
            at.append(len(prompt))
            prompt += fresh(chance.randint(1, longest)) + following
        prompts.append(prompt)
        places.append(at)
    found = analysed(prompts, shingle=shingle)
    starts = [sorted(one)[(many - 1) // 2] for one in zip(*places, strict=True)]
    assert [one.token for one in found.findings] == starts
    assert all(one.seen == many for one in found.findings)
    assert found.hit_ratio_then > found.hit_ratio_now
    for one in found.findings:
        for span in one.spans:
            assert span.start in places[span.prompt]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=80), max_size=8))
def test_whatever_comes_the_arithmetic_is_that_of_the_cache_and_mending_never_costs(prompts: list[list[int]]) -> None:
    found = analysed(prompts, shingle=1)
    tokens = sum(map(len, prompts))
    assert found.tokens == tokens
    assert found.hit_ratio_now == (hit_tokens(map(packed, prompts)) / tokens if tokens else 0)
    assert found.hit_ratio_now <= found.hit_ratio_then <= 1
    ratios = [found.hit_ratio_now, *(one.hit_ratio_then for one in found.findings)]
    assert ratios[-1] == found.hit_ratio_then
    for one in found.findings:
        assert 0 <= one.share <= 1
        assert 0 <= one.recurs <= 1
        assert one.length_tokens <= one.longest_tokens


def test_a_name_of_each_person_is_one_of_few_values() -> None:
    head, tail, names = fresh(40), fresh(200), [fresh(2) for _ in range(4)]
    prompts = [head + names[n % 4] + tail + fresh(8) for n in range(16)]
    (one,) = analysed(prompts).findings
    assert (one.token, one.distinct, one.seen, one.share) == (40, 4, 16, 3 / 16)


def test_a_question_at_the_end_is_as_it_should_be() -> None:
    head = fresh(300)
    found = analysed([head + fresh(50) for _ in range(16)])
    assert found.findings == ()
    assert found.hit_ratio_now == found.hit_ratio_then > 0.7


def test_a_growing_chat_is_as_it_should_be() -> None:
    chat: list[int] = fresh(100)
    prompts = []
    for _ in range(10):
        chat = chat + fresh(40)
        prompts.append(chat)
    assert analysed(prompts).findings == ()


def test_a_part_that_only_some_prompts_have_is_found() -> None:
    """A debugging header in a third of them."""
    head, tail = fresh(64), fresh(320)
    prompts = [head + (fresh(24) if n % 3 == 0 else []) + tail + fresh(4) for n in range(18)]
    (one,) = analysed(prompts).findings
    assert (one.token, one.length_tokens, one.seen) == (64, 24, 18)


def test_one_of_two_applications_is_at_fault() -> None:
    good, head, tail = fresh(200), fresh(20), fresh(200)
    prompts = [head + fresh(5) + tail if n % 2 else good + fresh(20) for n in range(24)]
    (one,) = analysed(prompts).findings
    assert (one.token, one.seen, one.share) == (20, 12, 11 / 24)


def test_where_matches_end_adds_up_to_all_prompts_but_the_first() -> None:
    head = fresh(100)
    found = analysed([head + fresh(10) for _ in range(10)])
    (one,) = found.partings
    assert one.token <= 100 <= one.until
    assert one.share == 9 / 10


def test_the_same_prompts_in_another_sample_are_known_by_the_same_place() -> None:
    head, tail = fresh(37), fresh(400)
    places = {analysed([head + fresh(6) + tail for _ in range(8)]).findings[0].place for _ in range(3)}
    assert len(places) == 1


def test_nothing_and_one_prompt_have_nothing_to_compare() -> None:
    assert analysed([]).findings == analysed([fresh(100)]).findings == ()
