"""One step's plan: answers first, prompts in quanta, the namespace that had least for its weight before others."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from engine_agent.engine.scheduler import Candidate, Turn, plan_step
from engine_agent.engine.shares import ComputeShares

BUDGET = 64


def prompt(key: str, namespace: str, tokens: int, *, rank: float = 0.0) -> Candidate[str]:
    return Candidate(key, namespace, tokens, is_decode=False, rank=(rank,))


def answer(key: str, namespace: str) -> Candidate[str]:
    return Candidate(key, namespace, 1, is_decode=True, rank=(0.0,))


def planned(
    candidates: Sequence[Candidate[str]],
    shares: ComputeShares | None = None,
    weights: dict[str, float] | None = None,
) -> dict[str, int]:
    even = dict.fromkeys((candidate.namespace for candidate in candidates), 1.0)
    turns = plan_step(candidates, shares or ComputeShares(), {**even, **(weights or {})}, budget_tokens=BUDGET)
    return {turn.key: turn.tokens for turn in turns}


def test_nothing_to_compute_is_an_empty_plan() -> None:
    assert plan_step([], ComputeShares(), {}, budget_tokens=BUDGET) == []


def test_a_prompt_alone_has_the_whole_chunk() -> None:
    assert planned([prompt("a", "one", 1000)]) == {"a": BUDGET}


def test_every_answer_gets_its_token_before_any_prompt() -> None:
    answers = [answer(f"answer {number}", "one") for number in range(10)]
    found = planned([prompt("long", "two", 1000), *answers])
    assert {key: tokens for key, tokens in found.items() if key != "long"} == {one.key: 1 for one in answers}
    assert found["long"] == BUDGET - 10


def test_two_tenants_prompts_share_a_chunk() -> None:
    assert planned([prompt("a", "one", 1000), prompt("b", "two", 1000)]) == {"a": 32, "b": 32}


def test_a_heavier_tenant_computes_more() -> None:
    shares, seen = ComputeShares(), Counter[str]()
    for _ in range(30):
        seen.update(planned([prompt("a", "one", 1000), prompt("b", "two", 1000)], shares, {"one": 3.0}))
    assert 2.8 <= seen["a"] / seen["b"] <= 3.2


def test_in_a_namespace_the_lowest_rank_goes_first() -> None:
    found = planned([prompt("late", "one", 1000, rank=2), prompt("early", "one", 40, rank=1)])
    assert found == {"early": 40, "late": 24}


def test_a_flood_of_one_tenant_delays_another_by_no_more_than_its_part_of_a_chunk() -> None:
    shares = ComputeShares()
    flood = [prompt(f"flood {number}", "noisy", 10_000, rank=number) for number in range(50)]
    for _ in range(20):
        planned(flood, shares)
    assert planned([*flood, prompt("quiet", "quiet", 16, rank=99)], shares)["quiet"] == 16


def test_whoever_was_idle_has_saved_nothing_up() -> None:
    shares = ComputeShares()
    planned([prompt("b", "two", 10)], shares)
    for _ in range(50):
        planned([prompt("a", "one", 1000)], shares)
    both = [prompt("a", "one", 1000), prompt("b", "two", 1000)]
    seen = Counter[str]()
    for _ in range(10):
        seen.update(planned(both, shares))
    assert abs(seen["a"] - seen["b"]) <= BUDGET


def test_answers_that_fill_the_budget_leave_prompts_a_quantum() -> None:
    answers = [answer(f"{number}", "one") for number in range(BUDGET)]
    assert planned([*answers, prompt("long", "two", 100)])["long"] == BUDGET // 4


CANDIDATES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 200), st.booleans(), st.integers(0, 9)), min_size=1, max_size=20
)


@given(CANDIDATES)
def test_a_plan_is_within_the_budget_and_leaves_no_token_unused(
    drawn: list[tuple[str, int, bool, int]],
) -> None:
    candidates = [
        Candidate(number, namespace, 1 if is_decode else tokens, is_decode, (rank,))
        for number, (namespace, tokens, is_decode, rank) in enumerate(drawn)
    ]
    turns: list[Turn[int]] = plan_step(candidates, ComputeShares(), dict.fromkeys("abc", 1.0), budget_tokens=BUDGET)
    total = sum(candidate.tokens for candidate in candidates)
    answers = sum(candidate.is_decode for candidate in candidates)
    assert sum(turn.tokens for turn in turns) == min(max(BUDGET, answers + BUDGET // 4), total)
    assert len({turn.key for turn in turns}) == len(turns)
    assert all(1 <= turn.tokens <= candidates[turn.key].tokens for turn in turns)
