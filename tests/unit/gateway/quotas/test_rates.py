"""Limits are kept over any stretch of time, whatever was estimated, and several gateways together keep them as one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.gateway.quotas.metering import Meter, rate_headers, tokens_asked
from engine_agent.gateway.quotas.rates import MINUTE, Exceeded, Quotas, Taken
from engine_agent.gateway.refusals import duration, limit_reached
from engine_agent.http.headers import CORS

WAITS = st.floats(0, 30, allow_nan=False)


def take(quotas: Quotas, now: float, tokens: int = 0, *, who: str = "1", gateways: int = 1, **limits: Any) -> Taken:
    found = quotas.take(who, limits, tokens=tokens, gateways=gateways, now=now)
    assert found is not None
    return found


def is_taken(quotas: Quotas, now: float, tokens: int = 0, **asked: Any) -> bool:
    try:
        take(quotas, now, tokens, **asked)
    except Exceeded:
        return False
    return True


def refused(quotas: Quotas, now: float, tokens: int = 0, **asked: Any) -> Exceeded:
    with pytest.raises(Exceeded) as caught:
        take(quotas, now, tokens, **asked)
    return caught.value


def test_without_limits_nothing_is_counted() -> None:
    assert Quotas().take("1", {}, tokens=10**9, gateways=1, now=0) is None


def test_a_minutes_requests_are_there_at_once_and_then_one_for_each_interval() -> None:
    quotas = Quotas()
    assert [is_taken(quotas, 0, requests_per_minute=6) for _ in range(7)] == [True] * 6 + [False]
    problem = refused(quotas, 0, requests_per_minute=6)
    assert (problem.limit, problem.most, problem.seconds) == ("requests_per_minute", 6, 10.0)
    assert not is_taken(quotas, 9.9, requests_per_minute=6)
    assert is_taken(quotas, 10, requests_per_minute=6)


@given(limit=st.integers(1, 50), gateways=st.integers(1, 4), waits=st.lists(WAITS, max_size=150))
def test_over_any_stretch_no_more_is_let_in_than_a_bucket_and_what_came_meanwhile(
    limit: int, gateways: int, waits: list[float]
) -> None:
    all_quotas, now, let_in = [Quotas() for _ in range(gateways)], 0.0, list[float]()
    for wait in waits:
        now += wait
        let_in += [now for one in all_quotas if is_taken(one, now, gateways=gateways, requests_per_minute=limit)]
    most_at_once = gateways * max(1.0, limit / gateways)
    for begin in range(0, len(let_in), 7):
        for end in range(begin, len(let_in), 5):
            seconds = let_in[end] - let_in[begin]
            assert end - begin + 1 <= most_at_once + seconds * limit / MINUTE + 1e-3


@given(limit=st.integers(1, 1_000), tokens=st.lists(st.integers(0, 2_000), max_size=60))
def test_whoever_waits_as_long_as_it_is_told_is_let_in(limit: int, tokens: list[int]) -> None:
    quotas, now = Quotas(), 0.0
    for wanted in tokens:
        if not is_taken(quotas, now, wanted, tokens_per_minute=limit):
            now += refused(quotas, now, wanted, tokens_per_minute=limit).seconds + 1e-6
            assert is_taken(quotas, now, wanted, tokens_per_minute=limit)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 800)), max_size=40))
def test_what_was_estimated_leaves_no_trace_when_it_is_known(asked: list[tuple[int, int]]) -> None:
    quotas, most = Quotas(), 10**9
    for estimated, needed in asked:
        taken = take(quotas, 0, estimated, tokens_per_minute=most)
        taken.settle(needed, 0)
        taken.end()
    left = quotas.levels("1", {"tokens_per_minute": most}, gateways=1, now=0)["tokens"].remaining
    assert left == most - sum(needed for _, needed in asked)


def test_what_is_refused_takes_nothing_of_any_limit() -> None:
    quotas = Quotas()
    limits: Any = {"requests_per_minute": 10, "tokens_per_minute": 100, "concurrent_requests": 5}
    take(quotas, 0, 100, **limits)
    for _ in range(20):
        assert refused(quotas, 0, 50, **limits).limit == "tokens_per_minute"
    assert quotas.levels("1", limits, gateways=1, now=0)["requests"].remaining == 9


def test_a_request_that_is_larger_than_the_limit_waits_for_all_of_it_and_is_paid_for() -> None:
    quotas = Quotas()
    assert is_taken(quotas, 0, 250, tokens_per_minute=100)
    assert refused(quotas, 0, 100, tokens_per_minute=100).seconds == pytest.approx(150)


def test_as_many_run_at_once_as_may_and_one_more_when_one_has_ended() -> None:
    quotas = Quotas()
    first, _ = (take(quotas, 0, concurrent_requests=2) for _ in range(2))
    assert refused(quotas, 0, concurrent_requests=2).limit == "concurrent_requests"
    first.end()
    first.end()  # once
    assert [is_taken(quotas, 0, concurrent_requests=2) for _ in range(2)] == [True, False]


def test_gateways_share_a_limit_and_none_is_left_without() -> None:
    alone, shared = Quotas(), Quotas()
    assert [is_taken(alone, 0, requests_per_minute=4) for _ in range(5)].count(True) == 4
    assert [is_taken(shared, 0, requests_per_minute=4, gateways=2) for _ in range(5)].count(True) == 2
    assert is_taken(shared, 0, who="2", requests_per_minute=1, concurrent_requests=1, gateways=3)


def test_one_organisations_requests_are_not_anothers() -> None:
    quotas = Quotas()
    assert is_taken(quotas, 0, requests_per_minute=1)
    assert is_taken(quotas, 0, who="2", requests_per_minute=1)


def test_a_clock_that_is_set_back_gives_nothing_and_locks_nobody_out() -> None:
    quotas = Quotas()
    assert is_taken(quotas, 1_000, requests_per_minute=1)
    assert not is_taken(quotas, 0, requests_per_minute=1)
    assert is_taken(quotas, 60, requests_per_minute=1)


# What a request uses


def metered(tokens: int = 100, body_bytes: int = 40) -> tuple[Quotas, Meter]:
    quotas = Quotas()
    return quotas, Meter(take(quotas, 0, tokens, tokens_per_minute=1_000), tokens, body_bytes, lambda: 0.0)


def left(quotas: Quotas) -> int:
    return quotas.levels("1", {"tokens_per_minute": 1_000}, gateways=1, now=0)["tokens"].remaining


@pytest.mark.parametrize("status", [401, 403, 404, 429, 503])
def test_a_request_that_was_refused_while_it_waited_takes_nothing(status: int) -> None:
    limits: dict[str, Any] = {"tokens_per_minute": 1_000, "requests_per_minute": 10, "concurrent_requests": 1}
    quotas = Quotas()
    meter = Meter(take(quotas, 0, 100, **limits), 100, 40, lambda: 0.0)
    meter.refused()
    meter.end()
    told = dict(meter.begins(status, []))
    assert (told["x-ratelimit-remaining-tokens"], told["x-ratelimit-remaining-requests"]) == ("1000", "10")
    take(quotas, 0, 100, **limits)  # and its place is free


def test_what_one_request_gives_back_is_nothing_of_anothers() -> None:
    limits: dict[str, Any] = {"requests_per_minute": 10}
    quotas = Quotas()
    other, refused = (take(quotas, 0, **limits) for _ in range(2))
    for _ in range(2):
        refused.give_back(0)
    assert other.levels(0)["requests"].remaining == 9


def test_an_answers_usage_is_what_counts() -> None:
    quotas, meter = metered()
    assert left(quotas) == 900
    told = dict(meter.begins(200, [("x-luminet-prompt-tokens", "30")]))
    assert told["x-ratelimit-remaining-tokens"] == "880"  # the prompt is known, the answer is not
    meter.passes(
        b'{"choices":[{"text":"\\"completion_tokens\\": 9"}],"usage":{"prompt_tokens":30,"completion_tokens":7}}'
    )
    meter.end()
    assert left(quotas) == 1_000 - 37


def test_a_stream_that_does_not_tell_has_as_many_tokens_as_parts() -> None:
    quotas, meter = metered()
    meter.begins(200, [("x-luminet-prompt-tokens", "30")])
    meter.passes(b'data: {"choices":[]}\n\ndata: {"choices":[]}\n\n')
    meter.passes(b'data: {"choices":[]}\n\ndata: [DONE]\n\n')
    meter.end()
    assert left(quotas) == 1_000 - 33


@pytest.mark.parametrize(("status", "tokens"), [(503, 0), (502, 0), (429, 0), (400, 0)])
def test_what_was_not_answered_costs_no_tokens(status: int, tokens: int) -> None:
    quotas, meter = metered()
    meter.end()
    meter.begins(status, [])  # as the application tells what it was not able to do
    other, early = metered()
    early.begins(status, [])
    early.end()
    assert (1_000 - left(other)) == tokens
    assert left(quotas) in (1_000, 990)  # of a bad request that never came to an engine, the prompt


def test_who_leaves_early_pays_for_the_prompt() -> None:
    quotas, meter = metered()
    meter.end()
    assert left(quotas) == 990


@pytest.mark.parametrize(
    ("told", "tokens"),
    [
        ({}, 10 + 16),
        ({"max_tokens": 50}, 60),
        ({"max_completion_tokens": 20, "max_tokens": 50}, 30),
        ({"max_tokens": 50, "n": 3}, 160),
        ({"max_tokens": 10**12}, 10 + 2_048),
        ({"max_tokens": "many", "n": [7]}, 26),
        ({"max_tokens": -4, "n": True}, 26),
    ],
)
def test_the_estimate_is_the_prompt_and_the_longest_answer(told: dict[str, Any], tokens: int) -> None:
    assert tokens_asked(told, 40, most=2_048) == tokens


def test_the_headers_are_openais_and_pages_may_read_them() -> None:
    quotas = Quotas()
    limits: Any = {"requests_per_minute": 60, "tokens_per_minute": 600}
    taken = take(quotas, 0, 100, **limits)
    told = dict(rate_headers(taken.levels(0)))
    assert told == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "500",
        "x-ratelimit-reset-tokens": "10s",
    }
    assert told.keys() <= set(dict(CORS)["access-control-expose-headers"].split(", "))


@given(st.floats(0, 10_000))
def test_no_duration_is_told_shorter_than_it_is(seconds: float) -> None:
    text = duration(seconds)
    minutes, _, rest = text.rpartition("m") if "m" in text and not text.endswith("ms") else ("0", "", text)
    told = float(rest[:-2]) / 1_000 if rest.endswith("ms") else int(minutes) * 60 + float(rest[:-1])
    assert seconds - 1e-5 <= told < seconds + 1.1


def test_a_refusal_says_which_limit_its_number_and_when_to_come_again() -> None:
    error = limit_reached("acme", Exceeded("requests_per_minute", 60, 1, 0.4))
    assert (error.status, error.headers["retry-after"]) == (429, "1")
    assert error.body["error"] == {
        "message": "Rate limit reached for acme on requests per minute: limit 60, requested 1. "
        "Please try again in 400ms.",
        "type": "requests",
        "param": None,
        "code": "rate_limit_exceeded",
    }
