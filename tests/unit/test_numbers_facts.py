"""Numbers in words: what they are of, what is not known, and nothing that was not measured."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.template.loader import render_to_string

from controlplane.analytics.hindsight import Hindsight, hindsight
from controlplane.analytics.movers import Moved, Movement
from controlplane.analytics.predicting import Effect
from controlplane.dashboard.analytics import facts
from controlplane.dashboard.analytics.marks import TOO_LITTLE, UNFORETOLD, Touched, marks_of, marks_title
from controlplane.dashboard.frame.charts import Mark
from controlplane.dashboard.frame.words import waiting_text
from controlplane.dashboard.overview import rows as overview_rows
from tenants.policy import Change

AT = datetime(2026, 11, 24, 12, tzinfo=UTC)
DAY = 86_400
COUNTED = {"requests": 100, "prompt_tokens": 1_000, "cached_tokens": 612, "hit_ratio": 0.612, "covered_seconds": DAY}
BEFORE = {"hit_ratio": 0.55, "covered_seconds": DAY, "requests": 90}
SERIES: dict[str, Any] = {
    "step_seconds": 300,
    "points": [{"at": AT, "hit_ratio": 0.5}, {"at": AT + timedelta(minutes=5), "hit_ratio": None}],
}


def found(**more: Any) -> dict[str, Any]:
    return {**COUNTED, "window_seconds": DAY, "before": BEFORE, **more}


@pytest.mark.parametrize(
    ("said", "window"), [("1h", "1h"), ("30d", "30d"), (None, "24h"), ("", "24h"), ("25h", "24h"), ("1H", "24h")]
)
def test_a_window_is_one_of_four(said: str | None, window: str) -> None:
    assert facts.window_asked(said) == window


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (33.91, "33.9 s"), (61, "1 min 1 s"), (5_330, "1 h 29 min"), (1_000_000, "11 d 13 h 47 min")],
)
def test_waiting_is_said_as_people_would(seconds: float, words: str) -> None:
    assert waiting_text(seconds) == words


def test_the_curves_title_says_between_what_it_was_and_against_the_day_before() -> None:
    rate = facts.rate_of(found(), SERIES, [None, None], [], window="24h")
    assert rate.title == "Between 50.0 and 50.0 % in 24 h, 6.2 points more than in the 24 h before"
    assert rate.chart is not None
    assert [one.label for one in rate.chart.series] == ["Last 24 h"], "of the day before nothing is known"
    assert rate.chart.series[0].values == (50.0, None)


def test_the_curve_of_another_window_says_its_rate_for_the_tile_does_not() -> None:
    title = facts.rate_of(found(), SERIES, [45.0, None], [Mark(1.0, "rev 7")], window="7d")
    assert title.title == "61.2 % from the cache in 24 h, 6.2 points more than in the 7 d before"
    assert title.chart is not None
    assert [one.is_dashed for one in title.chart.series] == [False, True]


@pytest.mark.parametrize("before", [{**BEFORE, "covered_seconds": DAY - 1}, {**BEFORE, "hit_ratio": None}])
def test_what_was_not_counted_whole_is_compared_with_nothing(before: dict[str, Any]) -> None:
    assert facts.rate_of(found(before=before), SERIES, [], [], window="7d").title == "61.2 % from the cache in 24 h"


def test_without_a_point_there_is_no_chart() -> None:
    none = {**SERIES, "points": [{"at": AT, "hit_ratio": None}]}
    rate = facts.rate_of(found(requests=0), none, [None], [], window="1h")
    assert (rate.title, rate.chart) == ("Nothing was asked in the last 1 h", None)


def saved(**more: Any) -> dict[str, tuple[str, str]]:
    """Return each number of the page with its note."""
    told = found(
        ttft_ms={"hit_p50": None, "miss_p50": None}, saved={"tokens": 612, "seconds": None, "money": None, **more}
    )
    page = render_to_string("dashboard/analytics/_stats.html", {"numbers": {"stats": told, "call": "GET /x"}})
    stats = re.findall(r'<dd class="stat__value" id="stat-([\w-]+)">(.*?)</dd>.*?-note">(.*?)</dd>', page, re.DOTALL)
    return {slug: (value.strip(), note.strip()) for slug, value, note in stats}


def test_unknown_numbers_say_so() -> None:
    values = {slug: value for slug, (value, _) in saved().items()}
    assert values == {
        "first-token": "too few to compare",
        "tokens": "612",
        "waiting": "too few to compare",
        "money": "not known",
    }


def test_hits_that_were_no_faster_saved_no_waiting() -> None:
    assert saved(seconds=-3.0)["waiting"] == ("none", "hits were no faster than misses, 24 h")


def test_money_names_models_without_a_price() -> None:
    money = {"currency": "EUR", "rounded": "0.06", "is_example": True, "without_price": ["a", "b"]}
    note = saved(money=money)["money"][1]
    assert note == "at example prices: nobody asks them, 24 h; lacks a, b, without a price"


def owned(name: str | None, prompt: int, **more: Any) -> dict[str, Any]:
    counts = {"requests": 1, "prompt_tokens": prompt, "cached_tokens": prompt // 2}
    return {"namespace": name, "is_deleted": False, "resident_bytes": 0, **counts, **more}


def test_rows_keep_their_place_while_their_numbers_move() -> None:
    largest_first = [owned("b", 300), owned("old", 200, is_deleted=True), owned("a", 100)]
    shown = facts.rows_of(largest_first, "namespace", nothing="none")
    assert [name for name, _ in shown.rows] == ["a", "b", "old"]
    assert shown.title == "b has 50 % of the prompt tokens of 3 namespaces"
    assert shown.unshown == 0


def test_the_largest_of_many_are_shown() -> None:
    many = [owned(f"n{number:03}", 1_000 - number) for number in range(facts.MOST_ROWS + 3)]
    shown = facts.rows_of(many, "namespace", nothing="none")
    assert (len(shown.rows), shown.unshown) == (facts.MOST_ROWS, 3)
    assert "n052" not in dict(shown.rows)


def test_one_that_is_gone_altogether_still_has_its_numbers() -> None:
    shown = facts.rows_of([owned(None, 100)], "namespace", nothing="none")
    assert shown.title == "All prompt tokens are of one that is gone"
    page = render_to_string("dashboard/analytics/_rows.html", {"found": shown, "by": "namespace"})
    assert "gone altogether" in page
    assert "50.0 %" in page


def test_of_nothing_no_share_is_told() -> None:
    assert facts.rows_of([], "model", nothing="No model was asked") == facts.Rows("No model was asked", [], 0)


# Revisions


def touched(minutes: int = 0, *, field: str = "ttl_seconds", known: Hindsight | None = None, **more: Any) -> Touched:
    change = Change(field, None, 300, 600, "fleet", "namespace")
    told = {"place": "chat", "short": "chat", "address": "", "note": "", "is_rollback": False, **more}
    return Touched(
        at=AT + timedelta(minutes=minutes), number=7, changes=(change,), effect=Effect(known, None, None), **told
    )


def test_revisions_close_together_share_a_mark() -> None:
    found = [touched(600), touched(1), touched(0)]
    assert [one.label for one in marks_of(found, seconds=DAY)] == ["2 changes", "chat rev 7"]
    assert [one.label for one in marks_of(found, seconds=60)] == ["chat rev 7"] * 3
    assert [one.label for one in marks_of([touched(short="")], seconds=DAY)] == ["rev 7"]


def marks_page(*marks: Touched) -> str:
    return render_to_string("dashboard/analytics/_marks.html", {"numbers": {"marks": marks}})


def test_a_revision_is_told_with_old_new_and_what_it_was_to_bring() -> None:
    page = marks_page(touched(known=Hindsight(0.61, 0.7049, 0.0123), note="Pauses", is_rollback=True))
    assert "<div>TTL: <del>5 min</del> → <ins>10 min</ins></div>" in page
    assert "rolled back. Pauses" in page
    assert '61.0 % → 70.5 %<span class="sub">± 1.2 points</span>' in page
    assert "no note" in marks_page(touched())


def test_why_nothing_is_predicted_is_said() -> None:
    assert touched().predicted == TOO_LITTLE
    assert touched(field="weight").predicted == UNFORETOLD


def test_how_many_policies_changed() -> None:
    assert marks_title([], window="7 d") == "No policy changed in the last 7 d"
    assert marks_title([touched(), touched()], window="1 h") == "2 policy changes in the last 1 h"


def test_nothing_is_foretold_where_nothing_foretellable_changed() -> None:
    values = {"ttl_seconds": 300, "ttl_mode": "sliding", "limit_share": 1.0, "prefix_caching": True}
    assert hindsight({1: []}, {1: values}, {1: values}) is None


# The overview


def agent(name: str, used: int | None, *, in_sync: bool = True, kind: str = "engine") -> dict[str, Any]:
    return {
        "id": name,
        "kind": kind,
        "state": "ready",
        "in_sync": in_sync,
        "group": "default",
        "models": [{"name": "m"}],
        "not_enforced": [],
        "pool": {"capacity_bytes": 1_000, "used_bytes": used},
    }


def test_the_fullest_pools_are_shown_in_the_order_of_names() -> None:
    many = [agent(f"agent-{number:02}", 10 * number) for number in range(12)]
    pools = overview_rows.pools([*many, agent("gateway", None, in_sync=False, kind="gateway")])
    assert [one["id"] for one, _, _ in pools.rows] == [f"agent-{number:02}" for number in range(4, 12)]
    assert pools.unshown == 4
    assert pools.title == "12 of 13 agents are in sync"


def test_a_pool_that_nothing_was_told_of_is_not_empty() -> None:
    pools = overview_rows.pools([agent("agent-1", None)])
    assert (pools.note, pools.rows[0][1]) == ("no pool has been told of", None)
    assert "not told yet" in render_to_string("dashboard/analytics/_pools.html", {"pools": pools})


def test_no_agent_is_none_out_of_sync() -> None:
    assert overview_rows.pools([]).title == "No agent has joined yet"


def moved(slug: str, now: int, before: int) -> Moved:
    def counts(cached: int) -> dict[str, int]:
        return {"requests": 20, "prompt_tokens": 1_000, "cached_tokens": cached, "generated_tokens": 0}

    return Moved(slug, counts(now), counts(before))


def test_movers_say_which_way() -> None:
    shown = overview_rows.movers(
        Movement(AT, DAY, DAY, 3, (moved("a", 800, 200), moved("b", 100, 300), moved("c", 5, 5)))
    )
    assert shown.title == "a gained most: 60.0 points"
    page = render_to_string("dashboard/analytics/_movers.html", {"movers": shown})
    assert re.findall(r'id="mover-(\w)".*?unseen">(\w+)</span> ([\d.]+ points)', page, re.DOTALL) == [
        ("a", "up", "60.0 points"),
        ("b", "down", "20.0 points"),
    ]


def test_nobody_moved_is_a_fact_and_nothing_to_compare_with_another() -> None:
    assert (
        overview_rows.movers(Movement(AT, DAY, DAY, 1, (moved("c", 5, 5),))).title == "No organisation’s hit rate moved"
    )
    young = overview_rows.movers(Movement(AT, 600, DAY, 0, ()))
    assert (young.title, young.note) == (
        "Nothing to compare with yet",
        "the day before has been counted for 10 min of 24 h",
    )
