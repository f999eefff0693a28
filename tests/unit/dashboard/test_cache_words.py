"""What pages of caches say, out of numbers alone."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.template.loader import render_to_string

from controlplane.analytics.evictions import Pair, Taken
from controlplane.analytics.linting import prompts_typed
from controlplane.dashboard.namespaces import evictions
from controlplane.dashboard.namespaces.diagnosis import diagnosis, most_first, summary
from controlplane.dashboard.namespaces.facts import (
    Revised,
    headline,
    held_most_first,
    in_force,
    origin_bar,
    rate_chart,
    stats_row,
)
from controlplane.dashboard.namespaces.forms import BadMessages, messages_read
from controlplane.dashboard.namespaces.operation_words import advice, title
from controlplane.dashboard.namespaces.operations import operation_context
from controlplane.dashboard.namespaces.pins import headline as pins_headline
from controlplane.dashboard.namespaces.reasons import REASONS, misses_headline, ordered, reason_rows, token_bar
from engine_agent.contracts.wire import MISSED
from tenants.models import Operation
from tenants.policy import Change

NOW = datetime(2026, 11, 22, 12, 30, tzinfo=UTC)
DAY = 86_400
VALUES: dict[str, Any] = {
    "prefix_caching": True,
    "ttl_seconds": 300,
    "ttl_mode": "sliding",
    "max_age_seconds": DAY,
    "kv_dtype": "fp8",
    "limit_share": 1.0,
    "reserved_share": 0.0,
}


def stats(**changes: Any) -> dict[str, Any]:
    before = {"hit_ratio": 0.5, "covered_seconds": DAY}
    found: dict[str, Any] = {
        "requests": 100,
        "prompt_tokens": 1000,
        "cached_tokens": 712,
        "hit_ratio": 0.712,
        "window_seconds": DAY,
        "covered_seconds": DAY,
        "ttft_ms": {"hit_p50": 48.0, "miss_p50": 342.4},
        "saved": {"tokens": 712, "seconds": 12.34, "money": None},
        "resident_bytes": 3 << 30,
        "missed_tokens_by_reason": dict.fromkeys(MISSED, 0) | {"cold": 288},
        "before": before,
    }
    return found | changes


# Of a namespace


def test_the_headline_claims_no_more_than_was_counted(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "Hit rate 71.2 %, up 21.2 points"),
        ({"before": {"hit_ratio": 0.9, "covered_seconds": DAY}}, "Hit rate 71.2 %, down 18.8 points"),
        ({"before": {"hit_ratio": 0.712, "covered_seconds": DAY}}, "Hit rate 71.2 %, as in the window before"),
        ({"before": {"hit_ratio": 0.5, "covered_seconds": DAY - 1}}, "Hit rate 71.2 %"),
        ({"before": {"hit_ratio": None, "covered_seconds": DAY}}, "Hit rate 71.2 %"),
        ({"requests": 19}, "19 requests so far in chat: too few for a hit rate"),
        ({"requests": 1}, "1 request so far in chat: too few for a hit rate"),
        ({"requests": 0}, "Nothing was asked of chat in the last 24 h"),
        ({"requests": 0, "covered_seconds": 0}, "Nothing has been measured in chat yet"),
    ]
    for changes, said in cases:
        with subtests.test(msg=f"{changes!r}, {said!r}"):
            assert headline(stats(**changes), slug="chat", window="24 h") == said


def test_nearly_all_is_not_all() -> None:
    nearly = stats(prompt_tokens=1_000_000, cached_tokens=999_999, hit_ratio=0.999999)
    assert headline(nearly, slug="chat", window="24 h").startswith("Hit rate 99.9 %")


def test_numbers_stand_with_unit_window_and_basis() -> None:
    served, first, saved, held = stats_row(stats(covered_seconds=200))
    assert (served.value, served.note) == ("712 tokens", "of 1,000 prompt tokens in 100 requests, 3 min of 24 h")
    assert first.value == "48 against 342 ms"
    assert (saved.value, saved.note) == ("712 tokens", "about 12.3 s of waiting, 3 min of 24 h; no price is set")
    assert held.value == "3.0 GiB"


def test_money_by_example_prices_says_so() -> None:
    money = {"rounded": "61.81", "currency": "EUR", "is_example": True}
    saved = stats_row(stats(saved={"tokens": 1, "seconds": None, "money": money}))[2]
    assert (saved.value, saved.note) == ("EUR 61.81", "at example prices; 24 h")


def test_what_cannot_be_compared_is_not() -> None:
    first = stats_row(stats(ttft_ms={"hit_p50": 48.0, "miss_p50": None}))[1]
    assert first.value == "too few to compare"


def test_a_bar_without_tokens_is_none() -> None:
    assert origin_bar(stats(prompt_tokens=0, cached_tokens=0)) is None
    bar = origin_bar(stats())
    assert bar is not None
    assert [(piece.label, piece.share) for piece in bar.pieces] == [
        ("Served from cache", "71.2 %"),
        ("New to the cache", "28.8 %"),
    ]


def point(minute: int, prompt: int, cached: int) -> dict[str, Any]:
    ratio = cached / prompt if prompt else None
    return {"at": NOW.replace(minute=minute), "prompt_tokens": prompt, "cached_tokens": cached, "hit_ratio": ratio}


def test_the_chart_says_between_what_its_line_moves_and_what_was_published() -> None:
    change = Change("ttl_seconds", None, 300, 600, "fleet", "namespace")
    flag = Change("prefix_caching", "m", True, False, "fleet", "namespace")
    revised = [Revised(NOW, 7, "", (change, flag), "Chats pause longer")]
    points = [point(0, 0, 0), point(5, 100, 50), point(10, 100, 80)]
    chart = rate_chart({"points": points, "step_seconds": 300}, revised, window="24 h")
    assert chart is not None
    assert chart.title == "Between 50.0 % and 80.0 % in each 5 min with requests, 24 h"
    assert chart.series[0].values == (None, 50.0, 80.0)
    (mark,) = chart.marks
    assert mark.label == "rev 7"
    assert mark.moment == NOW
    assert mark.words == "TTL: 5 min → 10 min; Prefix caching of m: on → off. “Chats pause longer”"


def test_a_chart_of_nothing_is_none() -> None:
    assert rate_chart({"points": [point(0, 0, 0)], "step_seconds": 300}, [], window="24 h") is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "Blocks live 5 min after last use, at most 24 h · fp8 · up to 100 % of each pool."),
        ({"ttl_mode": "absolute"}, "Blocks live 5 min after creation · fp8 · up to 100 % of each pool."),
        (
            {"reserved_share": 0.12, "max_age_seconds": None},
            "Blocks live 5 min after last use · fp8 · up to 100 % of each pool, 12 % guaranteed.",
        ),
        ({"prefix_caching": False}, "Prefix caching is off: nothing is kept and nothing matches."),
    ],
)
def test_what_is_in_force_is_one_line(changes: dict[str, Any], said: str) -> None:
    assert in_force(VALUES | changes) == said


def test_agents_that_hold_nothing_are_not_listed() -> None:
    assert held_most_first([("a", 0, NOW), ("b", 1 << 20, NOW), ("c", 3 << 20, NOW)]) == [
        ("c", 3 << 20, NOW),
        ("b", 1 << 20, NOW),
    ]


# Why misses happen


def test_every_reason_that_is_counted_has_words_and_advice() -> None:
    assert set(REASONS) == set(MISSED)
    assert all(one.label and one.meaning and one.advice for one in REASONS.values())


def test_reasons_are_in_the_order_of_their_size_and_the_tail_is_last() -> None:
    missed = {"tail": 900, "cold": 10, "expired": 90, "quota": 0}
    assert [name for name, _ in ordered(missed)] == ["expired", "cold", "tail"]
    assert [(reason, tokens) for _, reason, tokens in reason_rows(missed, Taken())] == [
        (REASONS["expired"], 90),
        (REASONS["cold"], 10),
        (REASONS["tail"], 900),
    ]


def test_pieces_of_the_bar_are_all_of_the_tokens() -> None:
    bar = token_bar("x", 500, {"cold": 300, "tail": 200})
    assert sum(piece.width for piece in bar.pieces) == pytest.approx(1000)
    assert [piece.kind for piece in bar.pieces] == ["served", "second", "third"]


@pytest.mark.parametrize(
    ("missed", "prompt", "said"),
    [
        ({}, 0, "Nothing was asked in the last 24 h, so nothing was missed"),
        ({"cold": 0}, 10, "Every prompt token of the last 24 h was served from cache"),
        ({"tail": 5}, 10, "50.0 % of prompt tokens were not served from cache, all of them behind the last full block"),
        (
            {"evicted": 4, "tail": 1},
            10,
            "50.0 % of prompt tokens were not served from cache, 80.0 % of those for one reason: the pool was full",
        ),
    ],
)
def test_the_headline_of_misses_names_the_main_reason(missed: dict[str, int], prompt: int, said: str) -> None:
    assert misses_headline(missed, prompt, window="24 h") == said


# What gateways found


def sample(**changes: Any) -> dict[str, Any]:
    finding = {"advice": "Move it.", "distinct": 3, "seen": 20}
    found: dict[str, Any] = {
        "as_of": NOW,
        "gateways": 2,
        "sampled_requests": 48,
        "sampled_tokens": 41_230,
        "hit_ratio_now": 0.03,
        "hit_ratio_then": 0.91,
        "findings": [finding],
        "partings": [],
    }
    return found | changes


def test_the_gain_is_said_in_whole_points_rounded_down() -> None:
    found = diagnosis("chat", sample(hit_ratio_then=0.9199))
    assert (found.points, found.title) == (88, "chat: hit rate 3 % → 91 % of the sample, with what varies at the end")
    assert found.basis == "48 prompts sampled, 41,230 tokens, by 2 gateways"
    assert found.findings == [("Move it.", "3 values in 20 prompts: a name, perhaps.")]
    assert summary([found]) == "One change to the prompts of chat would bring 88 points"


def test_who_gains_most_comes_first_and_who_was_not_looked_at_last() -> None:
    nothing = sample(as_of=None, gateways=0, hit_ratio_now=None, hit_ratio_then=None, findings=[])
    told = [
        diagnosis("a", nothing),
        diagnosis("b", sample(findings=[])),
        diagnosis("c", sample()),
        diagnosis("d", sample(hit_ratio_then=0.1)),
    ]
    assert [one.slug for one in most_first(told)] == ["c", "d", "b", "a"]
    assert summary(told[:2]) == "In the prompts that were looked at nothing varies that would gain by moving"
    assert summary(told[:1]) == "No prompt was looked at in the last 24 h"


# Who gives way


LEFT = {"evicted": 0, "quota": 0, "expired": 0, "purged": 0}
OWN, OTHERS = Taken(own_blocks=3, own_pressed_blocks=3), Taken(others_blocks=7)


def lost(left: dict[str, int], told: Taken) -> str:
    return evictions.title(LEFT | left, told, slug="chat", window="24 h", whose="your")


def test_customers_are_told_by_whose_doing() -> None:
    assert lost({}, OTHERS) == "Nothing of chat had to give way in 24 h"
    assert lost({"evicted": 7}, OTHERS) == "7 blocks gave way to fleet pressure in 24 h"
    assert lost({"evicted": 3}, OWN) == "3 blocks gave way to your own traffic in 24 h", "in a full pool"
    both = Taken(own_blocks=2_003, own_pressed_blocks=3, others_blocks=1)
    said = lost({"evicted": 4, "quota": 2_000}, both)
    assert said == "1 block gave way to fleet pressure and 2,003 blocks gave way to your own traffic in 24 h"


def test_nobody_is_accused_where_an_older_agent_does_not_say_for_whom() -> None:
    assert lost({"evicted": 9}, Taken()) == "9 blocks gave way in a full pool in 24 h"
    words = {word: blocks for word, blocks, _ in evictions.losses(LEFT | {"evicted": 9}, OTHERS, whose="your")}
    assert (words["By fleet pressure"], words["By your own traffic"], words["In a full pool"]) == (7, 0, 2)


@pytest.mark.parametrize(("own", "others", "evicted"), [(5, 9, 7), (9, 5, 7), (0, 9, 7), (2, 2, 7), (9, 9, 0)])
def test_what_left_is_never_more_than_was_counted(own: int, others: int, evicted: int) -> None:
    found = evictions.pressed(LEFT | {"evicted": evicted}, Taken(own_pressed_blocks=own, others_blocks=others))
    assert found.own + found.others + found.untold == evicted
    assert min(found.own, found.others, found.untold) >= 0


def pair(victim: int, by: int, blocks: int, cause: str = "pressure") -> Pair:
    return Pair(victim, by, f"v/{victim}", f"b/{by}", cause, blocks, blocks * 1024, NOW)


def test_who_evicted_most_is_named_first_and_ones_own_traffic_as_that() -> None:
    found = evictions.evicted_by([pair(1, 2, 30), pair(1, 1, 10, "quota")], slug="chat", window="24 h")
    assert found.title == "b/2 evicted most of chat: 30 blocks, 75.0 % of these"
    first, second = shown_rows(found)
    for words in ("b/2</th>", 'value="75"', "75.0 %", ">30</div>", "30.0 KiB", "the pool was full"):
        assert words in first
    for words in ('b/1<span class="sub">its own traffic', 'value="25"', ">10</div>", "10.0 KiB", "its own limit"):
        assert words in second
    own = evictions.evicted_by([pair(1, 1, 1)], slug="chat", window="24 h")
    assert own.title == "Its own traffic evicted most of chat: 1 block, 100.0 % of these"


def shown_rows(pairs: evictions.Pairs) -> list[str]:
    page = render_to_string("dashboard/namespaces/_pairs.html", {"pairs": pairs, "head": "Who", "is_victim": True})
    return page.partition("<tbody>")[2].split("</tr>")[:-1]


def test_whom_it_evicted_is_named_or_nobody() -> None:
    assert evictions.evicts([pair(3, 1, 4)], slug="chat", window="24 h").title.startswith("chat evicted v/3 most: 4")
    assert evictions.evicts([], slug="chat", window="24 h") == evictions.Pairs("chat evicted nobody else in 24 h")


def test_the_fleets_pairs_are_as_long_as_their_share_of_the_largest() -> None:
    found = [pair(1, 2, 40), pair(3, 2, 10)]
    assert evictions.fleet_title(found) == "b/2 evicted v/1 most: 40 blocks"
    pairs = [(found[0], "/there"), (found[1], "")]
    page = render_to_string("dashboard/analytics/_evicting.html", {"pairs": pairs, "largest": 40})
    first, second = page.partition("<tbody>")[2].split("</tr>")[:-1]
    assert '<a href="/there#evictions">v/1</a>' in first
    assert 'value="100"' in first
    assert "<a " not in second
    assert 'value="25"' in second


@pytest.mark.parametrize(
    ("told", "label"),
    [
        (Taken(), "Evicted from a full pool"),
        (OTHERS, "Evicted by fleet pressure"),
        (OWN, "Evicted from a full pool by your own traffic"),
        (
            Taken(own_pressed_blocks=3, others_blocks=7),
            "Evicted from a full pool, 70.0 % of the blocks by fleet pressure and 30.0 % by your own traffic",
        ),
    ],
)
def test_missed_tokens_of_evicted_blocks_say_by_whose_doing(told: Taken, label: str) -> None:
    ((said, _, _),) = reason_rows({"evicted": 5}, told)
    assert said == label


# Operations


def receipt(agent: str, **more: Any) -> dict[str, Any]:
    return {"agent": agent, "scope": "acme/chat", "blocks": 3, "bytes": 2048, "at": NOW.isoformat(), **more}


@pytest.mark.parametrize(
    ("state", "receipts", "awaited", "said"),
    [
        ("done", [], [], "The purge of acme/chat is done: no agent was concerned"),
        ("running", [], ["a"], "The purge of acme/chat: 0 of 1 agent have proved it"),
        ("running", [receipt("a")], ["b"], "The purge of acme/chat: 1 of 2 agents has proved it"),
        ("done", [receipt("a")], [], "The purge of acme/chat is done: the only agent has proved it"),
        ("done", [receipt("a", note="revoked")], [], "The purge of acme/chat is over: 0 of 1 agent proved it"),
        (
            "failed",
            [receipt("a", note="late"), receipt("b")],
            [],
            "The purge of acme/chat has failed: 1 of 2 agents proved it",
        ),
    ],
)
def test_an_operation_says_how_many_have_proved_it(state: str, receipts: Any, awaited: Any, said: str) -> None:
    assert title(kind="purge", scope="acme/chat", state=state, receipts=receipts, awaited=awaited) == said


def operation_page(**changes: Any) -> str:
    operation = Operation(kind="purge", scope="acme/chat", created_by="kim", created_at=NOW, **changes)
    return render_to_string("dashboard/namespaces/_operation.html", operation_context(operation))


def test_the_awaited_come_first_and_the_newest_receipt_next() -> None:
    page = operation_page(state="running", receipts=[receipt("a"), receipt("b")], awaited_agents=["c"])
    rows = re.findall(r'<th scope="row">(\w+)</th>.*?tag--\w+">([\w ]+)<', page, re.DOTALL)
    assert rows == [("c", "awaited"), ("b", "proved"), ("a", "proved")]
    assert "hx-get" in page
    assert advice(kind="purge", receipts=[receipt("a"), receipt("b")], awaited=["c"]).endswith(
        "6 blocks, 4.0 KiB, proved gone."
    )


def test_of_a_thousand_agents_two_hundred_are_shown() -> None:
    page = operation_page(state="done", receipts=[receipt(f"a{number}") for number in range(1000)], awaited_agents=[])
    assert page.count('<th scope="row">') == 200
    assert "And 800 more." in page
    assert "hx-get" not in page


# What is typed


def test_a_pasted_body_is_read_as_its_messages() -> None:
    assert messages_read('{"model": "m", "messages": [{"role": "user", "content": "hi"}]}') == [
        {"role": "user", "content": "hi"}
    ]


@pytest.mark.parametrize("typed", ["", "{}", "[]", "[1]", '[{"role": ""}]', '[{"role": "' + "x" * 41 + '"}]', "[NaN]"])
def test_what_are_no_messages_is_said(typed: str) -> None:
    with pytest.raises(BadMessages):
        messages_read(typed)


def test_more_messages_than_a_thousand_are_refused() -> None:
    with pytest.raises(BadMessages, match="1001 messages, 1000 are the most"):
        messages_read("[" + ",".join(['{"role": "user"}'] * 1001) + "]")


@pytest.mark.parametrize(
    ("typed", "texts"),
    [
        ("one", ["one"]),
        ("one\n---\ntwo", ["one", "two"]),
        ("one\r\n  -----  \r\ntwo\r\n---\r\n", ["one", "two"]),
        ("a -- b\n- list\n--\nc", ["a -- b\n- list\n--\nc"]),
        ('["one", "two"]', ["one", "two"]),
        ("---", ["---"]),
    ],
)
def test_texts_are_parted_by_lines_of_dashes(typed: str, texts: list[str]) -> None:
    assert [one.text for one in prompts_typed(typed)] == texts


def test_pins_without_room_are_not_said_to_be_kept() -> None:
    assert pins_headline(0, 0.0, 2, "chat") == "Nothing is pinned in chat"
    assert pins_headline(2, 0.0, 2, "chat") == "2 pins are wanted, and the policy gives pins no room"
    assert pins_headline(2, 0.125, 2, "chat") == "2 pins are wanted on 2 agents, in at most 12.5 % of each pool"
