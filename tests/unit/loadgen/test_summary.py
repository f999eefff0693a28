"""What many outcomes come to."""

import json
from statistics import quantiles

import pytest

from engine_agent.tools.loadgen.outcome import Outcome
from engine_agent.tools.loadgen.report import document, table
from engine_agent.tools.loadgen.server import Server
from engine_agent.tools.loadgen.sse import LONGEST_EVENT, EventReader
from engine_agent.tools.loadgen.summary import spread_of, summary_of

SERVER = Server("http://127.0.0.1:1/v1", "m", key="secret")


def outcome(ttft: float = 0.1, *, sent: float = 0.0, cached: int | None = 0, error: str | None = None) -> Outcome:
    gaps = (0.02,) * 9
    return Outcome(
        sent_seconds=sent,
        ttft_seconds=ttft,
        gaps_seconds=gaps,
        seconds=ttft + sum(gaps),
        prompt_tokens=100,
        output_tokens=10,
        cached_tokens=cached,
        error=error,
        detail="said" if error else "",
    )


def test_percentiles_are_numpys() -> None:
    values = [float(number**2) for number in range(37)]
    spread = spread_of(values)
    assert spread is not None
    expected = quantiles(values, n=100, method="inclusive")
    assert [spread.percentiles[percent] for percent in (50, 90, 95, 99)] == pytest.approx(
        [expected[percent - 1] for percent in (50, 90, 95, 99)]
    )
    assert (spread.n, spread.least, spread.most) == (37, 0.0, 36.0**2)


def test_nothing_has_no_spread() -> None:
    assert spread_of([None, None]) is None


def test_throughput_is_of_what_was_answered() -> None:
    summary = summary_of([outcome(sent=0.0), outcome(sent=9.72), outcome(sent=1.0, error="HTTP 429")])
    assert summary.seconds == pytest.approx(10.0)
    assert summary.requests_per_second == pytest.approx(0.2)
    assert summary.output_tokens_per_second == pytest.approx(2.0)
    assert summary.tokens_per_second == pytest.approx(22.0)
    assert (summary.requests, summary.answered, summary.errors) == (3, 2, {"HTTP 429": 1})


def test_hits_and_misses_are_told_apart() -> None:
    summary = summary_of([outcome(0.5, cached=0), outcome(0.01, cached=96), outcome(0.03, cached=96)])
    assert summary.hit_ratio == pytest.approx(192 / 300)
    assert summary.ttft_of_hits is not None
    assert summary.ttft_of_misses is not None
    assert summary.ttft_of_hits.mean == pytest.approx(0.02)
    assert summary.ttft_of_misses.mean == pytest.approx(0.5)


def test_a_server_that_does_not_say_has_no_hit_ratio() -> None:
    summary = summary_of([outcome(cached=None)])
    assert summary.hit_ratio is None
    assert "does not say how many" in table(summary)


def test_the_document_has_milliseconds_and_no_key() -> None:
    found = document(SERVER, {"dataset": "random"}, summary_of([outcome(0.5)]), [outcome(0.5)])
    assert found["ttft_ms"]["p99"] == pytest.approx(500)
    assert found["tpot_ms"]["mean"] == pytest.approx(20)
    assert found["outcomes"][0]["ttft_seconds"] == 0.5
    assert "secret" not in json.dumps(found)


def test_a_run_without_an_answer_says_why() -> None:
    summary = summary_of([outcome(error="HTTP 503 overloaded"), outcome(error="HTTP 503 overloaded")])
    assert "2 failed: HTTP 503 overloaded (said)" in table(summary)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_whole_however_the_bytes_come(size: int) -> None:
    stream = b': hello\n\ndata: {"a": 1}\r\n\r\nevent: x\ndata: two\ndata: lines\n\ndata:[DONE]\n\ndata: cut'
    reader, events = EventReader(), []
    for at in range(0, len(stream), size):
        events += reader.push(stream[at : at + size])
    assert events == ['{"a": 1}', "two\nlines", "[DONE]"]


def test_an_event_without_an_end_is_given_up() -> None:
    reader = EventReader()
    with pytest.raises(ValueError, match="without an end"):
        reader.push(b"x" * (LONGEST_EVENT + 1))
