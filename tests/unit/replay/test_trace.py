"""Reading traces: what is a request, and what is said of a line that is none."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.tools.errors import ToolError
from engine_agent.tools.replay.tokens import answer_tokens, prompt_tokens
from engine_agent.tools.replay.trace import LARGEST_ID, Request, read_trace
from tests.unit.replay.examples import BLOCK_TOKENS, lines_of, made_up, public_trace

GOOD = {"timestamp": 27482, "input_length": 40, "output_length": 5, "hash_ids": [7, 8, 9]}


def read(*lines: Any, head: int | None = None) -> list[Request]:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return read_trace(texts, block_tokens=BLOCK_TOKENS, head=head)


def test_a_line_is_a_request() -> None:
    (request,) = read(GOOD)
    assert (request.at_seconds, request.input_tokens, request.output_tokens) == (27.482, 40, 5)
    assert (list(request.hash_ids), request.namespace) == ([7, 8, 9], "default")
    assert read({**GOOD, "namespace": "acme", "model": "m"})[0].namespace == "acme"


def test_the_rest_of_a_prompt_may_have_no_id() -> None:
    assert list(read({**GOOD, "hash_ids": [7, 8]})[0].hash_ids) == [7, 8]


def test_requests_come_in_the_order_of_their_time_and_lines_of_one_moment_as_they_stand() -> None:
    found = read(*({**GOOD, "timestamp": at, "output_length": k} for k, at in enumerate((5, 3, 5, 3))))
    assert [(request.at_seconds, request.output_tokens) for request in found] == [
        (0.003, 1),
        (0.003, 3),
        (0.005, 0),
        (0.005, 2),
    ]


def test_the_head_is_counted_in_requests_and_the_rest_is_not_read() -> None:
    assert len(read("", GOOD, " \n", GOOD, "broken", head=2)) == 2


def test_what_is_written_is_read_again() -> None:
    requests = made_up(50)
    again = read_trace(lines_of(requests), block_tokens=BLOCK_TOKENS)
    assert [(one.input_tokens, one.hash_ids, one.namespace) for one in again] == [
        (one.input_tokens, one.hash_ids, one.namespace) for one in requests
    ]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("timestamp", "noon", "expected milliseconds"),
        ("timestamp", -1, "expected milliseconds"),
        ("timestamp", math.nan, "expected milliseconds"),
        ("timestamp", math.inf, "expected milliseconds"),
        ("timestamp", True, "expected milliseconds"),
        ("input_length", 0, "expected tokens, from 1"),
        ("input_length", 40.0, "found 40.0"),
        ("input_length", 2**40, "found 1099511627776"),
        ("output_length", -1, "expected tokens, from 0"),
        ("output_length", None, "found None"),
        ("hash_ids", "789", "expected a list"),
        ("hash_ids", [7], "expected 3 ids for 40 tokens in blocks of 16, found 1"),
        ("hash_ids", [7, 8, 9, 10], "found 4"),
        ("namespace", "", "expected a name"),
        ("namespace", "a\nb", "expected a name"),
        ("namespace", "\udcff", "expected a name"),
        ("namespace", None, "expected a name"),
    ],
)
def test_a_bad_field_is_named_with_its_line(field: str, value: Any, said: str) -> None:
    with pytest.raises(ToolError) as caught:
        read(GOOD, "", {**GOOD, field: value})
    assert str(caught.value).startswith(f"line 3: {field}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("one", [-1, LARGEST_ID + 1, 1.5, "8", None, True])
def test_a_bad_hash_id_is_named_with_its_place(one: Any) -> None:
    with pytest.raises(ToolError, match=r"^line 1: hash_ids\[1\]: expected a number"):
        read({**GOOD, "hash_ids": [7, one, 9]})


@pytest.mark.parametrize("field", sorted(GOOD))
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(ToolError, match=f"^line 1: {field}: is missing$"):
        read({name: value for name, value in GOOD.items() if name != field})


@pytest.mark.parametrize("line", ["{", "[" * 100_000, '"x"', "17", "\udcff", "9" * 5_000])
def test_a_line_that_is_no_request_is_named(line: str) -> None:
    with pytest.raises(ToolError, match=r"^line 2: line: ") as caught:
        read(GOOD, line)
    assert len(str(caught.value)) < 300


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda some: some.decode("utf-8", "surrogateescape")))
def test_whatever_a_line_says_there_is_a_request_or_an_error_of_ours(line: str) -> None:
    with pytest.raises(ToolError):
        read(line)


def test_a_trace_without_requests_is_an_error() -> None:
    with pytest.raises(ToolError, match="there is no request in it"):
        read("", "\n")


def test_the_public_trace_is_what_its_source_says() -> None:
    requests = public_trace()
    assert len(requests) == 12_031
    assert sum(request.input_tokens for request in requests) == 144_793_823


# Tokens.


def blocks_of(request: Request, block_tokens: int, number: int = 1) -> list[tuple[int, ...]]:
    tokens = prompt_tokens(request, number, block_tokens)
    assert len(tokens) == request.input_tokens
    return [tuple(tokens[k : k + block_tokens]) for k in range(0, len(tokens) - block_tokens + 1, block_tokens)]


@pytest.mark.parametrize("size", [2, 3, 16, 512])
def test_equal_ids_are_equal_blocks_and_no_others_are(size: int) -> None:
    ids = [0, 1, 2**31, 2**32, 2**32 + 1, LARGEST_ID]
    prompts = [read_trace([request_line([one, other], size)], block_tokens=size)[0] for one in ids for other in ids]
    firsts = {blocks_of(prompt, size)[0] for prompt in prompts}
    assert len(firsts) == len(ids)
    assert {blocks_of(prompt, size)[1] for prompt in prompts} == firsts


def request_line(ids: list[int], size: int) -> str:
    return json.dumps({**GOOD, "input_length": len(ids) * size, "hash_ids": ids})


def test_a_rest_without_an_id_and_an_answer_are_like_nothing_else() -> None:
    (request,) = read({**GOOD, "hash_ids": [7, 8]})
    ends = {tuple(prompt_tokens(request, number, BLOCK_TOKENS)[32:]) for number in range(5)}
    assert len(ends) == 5
    assert {len(end) for end in ends} == {8}
    (last,) = read({**GOOD, "hash_ids": [7, 8, LARGEST_ID]})
    assert tuple(prompt_tokens(last, 1, BLOCK_TOKENS)[32:]) not in ends
    assert [len(answer_tokens(3, count)) for count in (0, 1, 2, 7)] == [0, 1, 2, 7]
