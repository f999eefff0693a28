"""Events are passed on whole, and nothing of a stream is lost or altered."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from engine_agent.gateway.events import MOST_BEGUN_BYTES, WholeEvents

STREAM = b'data: {"a":1}\n\ndata: {"b":"\xc3\xa9"}\n\ndata: [DONE]\n\n'


@given(st.binary(max_size=80) | st.just(STREAM), st.lists(st.integers(0, 80), max_size=8))
def test_what_comes_in_any_pieces_goes_out_the_same(stream: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    events = WholeEvents()
    told = [events.take(stream[begin:end]) for begin, end in itertools.pairwise(places)]
    assert b"".join(told) + events.rest() == stream
    assert all(not one or one.endswith((b"\n\n", b"\r\n\r\n")) for one in told)


def test_an_event_that_has_only_begun_waits() -> None:
    events = WholeEvents()
    assert events.take(b"data: 1\n\ndata: 2") == b"data: 1\n\n"
    assert events.take(b"\n") == b""
    assert events.take(b"\ndata") == b"data: 2\n\n"
    assert events.rest() == b"data"


def test_no_event_is_too_long_to_pass() -> None:
    events, part = WholeEvents(), b"x" * (MOST_BEGUN_BYTES // 2 + 1)
    assert events.take(part) == b""
    assert events.take(part) == part + part
