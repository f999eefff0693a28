"""How much is looked at, and that it is no more however much comes."""

from hypothesis import given
from hypothesis import strategies as st

from engine_agent.divergence.analysing import Sample
from engine_agent.gateway.diverging.sampling import (
    AT_ONCE,
    FIRST_LOOK_SECONDS,
    LEAST_PROMPTS,
    LOOK_SECONDS,
    MOST_PROMPTS,
    Sampling,
)

MARKS = Sample(bytes(400))


def filled(sampling: Sampling, namespace: str, many: int, at: float) -> None:
    for _ in range(many):
        if sampling.wants(namespace, at):
            sampling.keep(namespace, MARKS)
        at += 1


def test_a_busy_namespace_gives_a_few_at_once_and_then_one_a_second() -> None:
    sampling = Sampling()
    assert sum(sampling.wants("1", 1000.0) for _ in range(100)) == AT_ONCE
    assert sum(sampling.wants("1", 1000.0 + n / 10) for n in range(1, 101)) == 10


def test_enough_new_prompts_are_looked_at_once_a_while() -> None:
    sampling = Sampling()
    filled(sampling, "1", LEAST_PROMPTS - 1, 1000.0)
    assert sampling.due(2000.0) is None
    filled(sampling, "1", 1, 1100.0)
    assert sampling.due(2000.0) == "1"
    assert len(sampling.look("1", 2000.0)) == LEAST_PROMPTS
    assert sampling.due(3000.0) is None
    filled(sampling, "1", 4, 2000.0)
    assert sampling.due(2000.0 + LOOK_SECONDS - 1) is None
    assert sampling.due(2000.0 + LOOK_SECONDS) == "1"


def test_the_first_look_comes_soon_after_the_first_prompt() -> None:
    sampling = Sampling()
    filled(sampling, "1", LEAST_PROMPTS, 1000.0)
    assert sampling.due(1000.0 + FIRST_LOOK_SECONDS - 1) is None
    assert sampling.due(1000.0 + FIRST_LOOK_SECONDS) == "1"


def test_only_the_newest_are_kept() -> None:
    sampling = Sampling()
    filled(sampling, "1", 3 * MOST_PROMPTS, 1000.0)
    assert len(sampling.look("1", 5000.0)) == MOST_PROMPTS
    assert sampling.bytes == MOST_PROMPTS * 400


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 300)), max_size=80))
def test_however_many_namespaces_there_are_memory_is_bounded(prompts: list[tuple[int, int]]) -> None:
    sampling, at = Sampling(most_bytes=4_000), 1000.0
    for namespace, marks in prompts:
        at += 1
        if sampling.wants(str(namespace), at):
            sampling.keep(str(namespace), Sample(bytes(4 * marks)))
            assert sampling.bytes <= 4_000 or sampling.namespaces == 1
    for namespace in range(1, 7):
        sampling.forget(str(namespace))
    assert sampling.bytes == 0
