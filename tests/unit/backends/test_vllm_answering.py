"""vLLM's tokens become what our own engine would have said: text, stop strings and ends."""

import pytest

from engine_agent.backends.vllm.answering import Choice, logprobs_of
from engine_agent.backends.vllm.asked import Asked, admission_packed, admission_unpacked
from engine_agent.backends.vllm.formats import FORMATS, UnservedFormat, names_of
from engine_agent.engine.outputs import Admission, Delta, Logprob
from engine_agent.engine.params import SamplingParams
from engine_agent.engine.stops import StopStrings

EOS = 9


class Letters:
    """Token 1 is "a", 2 is "b", and so on."""

    def push(self, token: int) -> str:
        return "" if token == EOS else chr(96 + token)

    def finish(self) -> str:
        return ""

    def copy(self) -> "Letters":
        return self


def choice(**params: object) -> Choice:
    asked = SamplingParams(**params)  # type: ignore[arg-type]
    return Choice(0, asked, frozenset({EOS}), Letters(), StopStrings(asked.stop, include=asked.include_stop))


def text(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def test_tokens_come_one_by_one_with_the_end_at_the_last() -> None:
    said = list(choice().push([1, 2], None, "length"))
    assert [(delta.token, delta.text, delta.finish) for delta in said] == [(1, "a", None), (2, "b", "length")]


def test_a_stop_string_ends_it_also_where_vllm_goes_on() -> None:
    one = choice(stop=("bc",))
    said = [*one.push([1], None, None), *one.push([2, 3, 4], None, None)]
    assert text(said) == "a"
    assert (said[-1].token, said[-1].finish, said[-1].stopped_by) == (3, "stop", "bc")
    assert one.is_over


def test_what_a_stop_string_held_back_is_said_at_the_end() -> None:
    one = choice(stop=("bc",))
    said = [*one.push([1, 2], None, None), *one.push([], None, "length")]
    assert text(said) == "ab"
    assert (said[-1].token, said[-1].finish) == (None, "length")


def test_the_end_token_is_not_said_and_a_stop_token_is_named() -> None:
    (said,) = choice().push([EOS], None, "stop")
    assert (said.text, said.finish, said.stopped_by) == ("", "stop", None)
    (said,) = choice(stop_token_ids=(3,)).push([3], None, "stop")
    assert (said.text, said.finish, said.stopped_by) == ("", "stop", 3)


def test_logprobs_are_the_chosen_ones_and_as_many_others_as_were_asked_for() -> None:
    (one,) = logprobs_of([[5, 7, 5]], [[-0.5, -0.25, -0.5]], 1)
    assert one.chosen == Logprob(5, -0.5)
    assert one.top == (Logprob(7, -0.25),)


def test_whose_a_request_is_travels_in_plain_types() -> None:
    asked = Asked("12", kv_format="fp8", salt="aa", ttl_seconds=3, kind="probe", is_told=True)
    assert Asked.unpacked(asked.packed()) == asked
    assert Asked.unpacked(None) is Asked.unpacked({"luminet": "x"}) is None
    admission = Admission(10, 4, "fp8_e4m3", 3, "cold", {"cold": 4, "tail": 2}, "7")
    assert admission_unpacked(admission_packed(admission)) == admission


@pytest.mark.parametrize("name", ["int8_per_token_head", "nvfp4", "turboquant_4bit_nc", "float16"])
def test_a_format_that_is_not_computed_as_it_is_called_is_refused(name: str) -> None:
    with pytest.raises(UnservedFormat, match=name):
        names_of(name, "bfloat16")


def test_what_is_computed_comes_first_and_fp8_is_another_name_of_it() -> None:
    assert names_of("fp8", "bfloat16") == names_of("fp8_e4m3", "float32") == ("fp8_e4m3", "fp8")
    assert names_of("auto", "bfloat16") == names_of("bfloat16", "float32") == ("bf16",)
    assert names_of("auto", "float32") == ("fp32",)
    assert all(names_of(name, "bfloat16") for name in FORMATS)
