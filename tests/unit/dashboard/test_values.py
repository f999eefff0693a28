"""How values read in templates: each filter by what a page shows of it."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.template import engines

from controlplane.dashboard.frame.states import STATES, Tag
from controlplane.dashboard.frame.words import sentence
from engine_agent.contracts.words import listed

AT = datetime(2026, 11, 24, 9, 5, 7, tzinfo=UTC)
ISO = "2026-11-24T09:05:07+00:00"


def shown(written: str, **values: Any) -> str:
    return engines["django"].from_string(f"{{{{ {written} }}}}").render(values)


@pytest.mark.parametrize(
    ("written", "value", "text"),
    [
        ("x|backend", {"backend": "vllm", "backend_version": None}, "vllm"),
        ("x|bytes", 3 << 30, "3.0 GiB"),
        ("x|bytes", 0, "0 B"),
        ("x|bytes", None, "–"),
        ("x|count", 1234567, "1,234,567"),
        ("x|count", None, "–"),
        ('x|counted:"block"', 1, "1 block"),
        ('x|counted:"block"', 0, "0 blocks"),
        ("x|duration", 5400, "1 h 30 min"),
        ("x|duration", 0, "0 s"),
        ("x|guard_limit:0.5", "ttft_p95_rise", "+ 50 %"),
        ("x|kv_format:y", "fp8", "fp8 (computed as fp8_e4m3)"),
        ("x|listed:2", ["a", "b", "c"], "a, b and 1 more"),
        ("x|measured:86400", 600, "10 min of 24 h"),
        ('x|money:"EUR"', Decimal("1.2"), "EUR 1.20"),
        ('x|money:"EUR"', Decimal("1.005"), "EUR 1.01"),
        ("x|policy_label:None", "ttl_seconds", "TTL"),
        ("x|policy_value:300", "ttl_seconds", "5 min"),
        ('x|price:"EUR"', Decimal("0.1250"), "EUR 0.125"),
        ("x|price", Decimal("1E+1"), "10"),
        ("x|pairs", {"b": "2", "a": "1"}, "a=1, b=2"),
        ("x|percent", 0.125, "12.5 %"),
        ("x|percent", 0.29, "29 %"),
        ("x|percent:0", 0.126, "13 %"),
        ("x|rate:1000000", 999_999, "99.9 %"),
        ("x|rate:0", 0, "–"),
        ("x|share:4", 1, "25.0 %"),
        ("x|share:0", 0, "–"),
        ('x|unit:"milliseconds"', 1234.4, "1,234 ms"),
        ("x|waiting", 33.91, "33.9 s"),
        ("x|without_stop", "It waits.", "It waits"),
        ("x|text", "half \ud83d", "half ?"),
    ],
)
def test_a_value_reads_with_its_unit(written: str, value: Any, text: str) -> None:
    assert shown(written, x=value, y={"fp8": "fp8_e4m3"}) == text


@pytest.mark.parametrize("at", [AT, ISO])
def test_a_time_is_for_browsers_and_people(at: datetime | str) -> None:
    assert shown("at|moment", at=at) == f'<time data-moment datetime="{ISO}">24 Nov 2026, 09:05:07 UTC</time>'
    assert shown('at|moment:"j M Y"', at=at) == f'<time data-moment datetime="{ISO}">24 Nov 2026 UTC</time>'
    assert shown("at|clock", at=at) == f'<time data-clock datetime="{ISO}">09:05:07 UTC</time>'
    assert shown("at|age", at=at) == f'<time data-age datetime="{ISO}">at 09:05:07 UTC</time>'
    assert shown('at|age:"H:i:s"', at=at) == f'<time data-age datetime="{ISO}">09:05:07 UTC</time>'


def test_a_time_that_never_was_leaves_room_for_a_word() -> None:
    assert shown('at|moment|default:"never"', at=None) == "never"
    assert shown("at|age", at="") == ""


def test_a_state_is_a_word_and_a_meaning() -> None:
    assert shown('x|state:"rollout"', x="rolled_back") == '<span class="tag tag--bad">taken back</span>'
    assert shown('x|state:"rollout"', x="new <b>") == '<span class="tag tag--info">new &lt;b&gt;</span>'
    assert shown("x|state", x=Tag("a <b>", "ok")) == '<span class="tag tag--ok">a &lt;b&gt;</span>'


def test_every_state_has_a_known_meaning() -> None:
    assert {tone for kind in STATES.values() for _, tone in kind.values()} <= {"ok", "info", "warn", "bad"}


def test_what_is_listed_is_named_or_counted() -> None:
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a"] * 1003, 2) == "a, a and 1,001 more"
    assert listed([], 2) == ""
    assert listed(["a"], 1, total=3) == "a and 2 more"


@pytest.mark.parametrize(("said", "read"), [("no", "No."), ("Really?", "Really?"), ("is over.", "Is over.")])
def test_a_sentence_begins_and_ends_as_one(said: str, read: str) -> None:
    assert sentence(said) == read
