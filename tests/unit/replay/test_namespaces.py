"""Whose request is whose."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from engine_agent.tools.errors import ToolError
from engine_agent.tools.replay.namespaces import FLOODER, flooded, namespaces_of, only, split
from engine_agent.tools.replay.trace import Request
from tests.unit.replay.examples import BLOCK_TOKENS, made_up, public_trace


def conversation_of(request: Request) -> int:
    """By construction: the first id behind the system prompt."""
    return request.hash_ids[min(1, len(request.hash_ids) - 1)]


def test_all_turns_of_a_conversation_go_to_one_namespace() -> None:
    requests = split(made_up(300), 8)
    assert namespaces_of(requests) == [f"namespace-{k}" for k in range(8)]
    homes = {(conversation_of(one), one.namespace) for one in requests}
    assert len(homes) == len({conversation for conversation, _ in homes})


def test_splitting_changes_nothing_else() -> None:
    requests = made_up(100)
    assert [replace(one, namespace="default") for one in split(requests, 3)] == requests


def test_every_eighth_conversation_of_the_public_trace_is_the_quiet_one_of_the_notes() -> None:
    assert len(only(split(public_trace(), 8), "namespace-0")) == 1_468


def test_only_one_namespace_is_left() -> None:
    requests = split(made_up(100), 3)
    assert {one.namespace for one in only(requests, "namespace-2")} == {"namespace-2"}
    with pytest.raises(
        ToolError, match=r"^--only: acme has no requests; there are namespace-0, namespace-1, namespace-2$"
    ):
        only(requests, "acme")


@pytest.mark.parametrize("times", [1, 4, 0.5])
def test_a_flooder_comes_evenly_and_never_with_the_same_block_twice(times: float) -> None:
    requests = made_up(200)
    mixed = flooded(requests, times, block_tokens=BLOCK_TOKENS)
    assert [one for one in mixed if one.namespace != FLOODER] == requests
    flood = [one for one in mixed if one.namespace == FLOODER]
    assert len(flood) == 200 * times
    assert (
        max(Counter(one for request in mixed for one in request.hash_ids if request.namespace == FLOODER).values()) == 1
    )
    assert {one for request in flood for one in request.hash_ids}.isdisjoint(
        one for request in requests for one in request.hash_ids
    )
    gaps = {round(b.at_seconds - a.at_seconds, 6) for a, b in pairwise(flood)}
    assert max(gaps) - min(gaps) < 1e-5
    assert [one.at_seconds for one in mixed] == sorted(one.at_seconds for one in mixed)


def test_a_flooder_is_as_large_as_the_others_are_on_average() -> None:
    requests = made_up(200)
    mean = sum(one.input_tokens for one in requests) / len(requests)
    (size,) = {one.input_tokens for one in flooded(requests, 1, block_tokens=BLOCK_TOKENS) if one.namespace == FLOODER}
    assert mean - BLOCK_TOKENS < size <= mean
    assert size % BLOCK_TOKENS == 0


def test_a_flood_that_cannot_be_is_refused() -> None:
    with pytest.raises(ToolError, match="expected at most"):
        flooded(made_up(10), 1e9, block_tokens=BLOCK_TOKENS)
    with pytest.raises(ToolError, match=FLOODER):
        flooded([replace(one, namespace=FLOODER) for one in made_up(10)], 1, block_tokens=BLOCK_TOKENS)
