"""What rounds of probes say, and what is told of them."""

from dataclasses import replace

import pytest

from engine_agent.gateway.canary.findings import LEAST_PAIRS, MOST_PAIRS, Findings
from engine_agent.gateway.canary.judging import Round, Seen, Verdict, judge

MISS, HIT = Seen(200, 0, 9.0), Seen(200, 192, 2.0)
GOOD = Round(fresh=MISS, again=HIT, foreign=replace(MISS, milliseconds=8.0), unseen=MISS)


def test_who_sent_it_hits_and_the_other_misses() -> None:
    assert judge(GOOD) == Verdict("isolated", pair=(8.0, 9.0))


@pytest.mark.parametrize("where", ["foreign", "fresh", "unseen"])
def test_whatever_is_cached_for_who_never_sent_it_is_a_leak(where: str) -> None:
    found = judge(replace(GOOD, **{where: Seen(200, 16, 1.0)}))
    assert (found.outcome, found.pair) == ("leaked", None)
    assert "16 of 200 tokens" in found.why


def test_a_leak_counts_also_where_nothing_else_is_proven() -> None:
    assert judge(replace(GOOD, again=MISS, foreign=HIT)).outcome == "leaked"


def test_where_nothing_is_kept_nothing_is_proven() -> None:
    found = judge(replace(GOOD, again=MISS))
    assert (found.outcome, found.pair) == ("unkept", None)


def test_a_prompt_of_few_blocks_proves_nothing() -> None:
    short = Seen(40, 0, 1.0)
    assert judge(Round(short, replace(short, cached_tokens=32), short, short)).outcome == "failed"


def found(*verdicts: Verdict) -> Findings:
    findings = Findings()
    for second, verdict in enumerate(verdicts):
        findings.add("agent-1", verdict, float(second))
    return findings


def test_rounds_are_told_once() -> None:
    findings = found(judge(GOOD), judge(GOOD), Verdict("failed", "it is down"))
    told = findings.take()["agent-1"]
    assert told["rounds"] == {"isolated": 2, "leaked": 0, "unkept": 0, "failed": 1}
    assert told["failure"] == {"at": 2.0, "why": "it is down"}
    assert told["timing"] is None, "of two pairs there is nothing to say"
    assert findings.take() == {}


def test_the_latest_times_are_kept_and_no_more() -> None:
    findings = found(*[Verdict("isolated", pair=(1.0, 2.0))] * MOST_PAIRS)
    assert findings.take()["agent-1"]["timing"]["auc"] == 1.0
    for _ in range(MOST_PAIRS):
        findings.add("agent-1", Verdict("isolated", pair=(2.0, 2.0)), 0.0)
    timing = findings.take()["agent-1"]["timing"]
    assert (timing["pairs"], timing["auc"]) == (MOST_PAIRS, 0.5)


def test_times_that_differ_show_as_soon_as_there_are_enough() -> None:
    findings = found(*[Verdict("isolated", pair=(1.0, 2.0))] * LEAST_PAIRS)
    timing = findings.take()["agent-1"]["timing"]
    assert timing["pairs"] == LEAST_PAIRS
    assert timing["low"] > 0.55


def test_an_agent_that_left_is_forgotten_once_it_was_told_of() -> None:
    findings = found(judge(GOOD))
    findings.keep([])
    assert findings.take()
    findings.keep([])
    assert not findings.all()
