"""Pools as bars: what fills them, never more than there is, and what was not told is not said."""

from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane.analytics.agents import FleetPools, Held, Hits, PoolHeld, Step
from controlplane.dashboard.fleet.agent_charts import charts, window_asked
from controlplane.dashboard.fleet.pools import fleet_bar, held_rows, legend, pool_bar

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def held(name: str, size: int, kv_dtype: str = "") -> Held:
    return Held(name, kv_dtype, size, NOW)


def told(used: int | None = 50, capacity: int = 100) -> dict[str, Any]:
    return {"capacity_bytes": capacity, "used_bytes": used}


def test_a_bar_has_the_largest_by_name_and_all_others_together() -> None:
    found = pool_bar(told(), PoolHeld(tuple(held(f"acme/{n}", n) for n in (20, 10, 5, 3)), others=6, others_bytes=4))
    assert found is not None
    assert [(one.label, one.amount) for one in found.pieces] == [
        ("acme/20", "20 B"),
        ("acme/10", "10 B"),
        ("acme/5", "5 B"),
        ("7 others", "7 B"),
    ]
    assert found.title == "Pool 50 % used"


def test_what_was_not_told_is_not_drawn() -> None:
    assert pool_bar(told(used=None), PoolHeld((), 0, 0)) is None
    assert pool_bar(told(capacity=0), PoolHeld((), 0, 0)) is None
    assert fleet_bar(told(used=None), (), ()) is None


def test_a_bar_never_runs_out_of_its_frame_whatever_agents_tell() -> None:
    found = pool_bar(told(), PoolHeld((held("acme/a", 5_000),), 0, 0))
    assert found is not None
    assert sum(one.width for one in found.pieces) <= 1000


def test_each_format_of_a_namespace_is_a_piece_of_its_own() -> None:
    found = pool_bar(told(), PoolHeld((held("acme/chat", 20, "fp8"), held("acme/chat", 5, "int4")), 0, 0))
    assert found is not None
    assert [one.label for one in found.pieces] == ["acme/chat · fp8", "acme/chat · int4"]


def test_a_format_of_an_agent_that_computes_it_as_another_says_so() -> None:
    there, as_told = PoolHeld((held("acme/chat", 20, "fp8"), held("a", 5, "bf16")), 0, 0), {"fp8": "fp8_e4m3"}
    found = pool_bar(told(), there, as_told)
    assert found is not None
    assert [one.label for one in found.pieces] == ["acme/chat · fp8 (computed as fp8_e4m3)", "a · bf16"]
    bar = fleet_bar(told(), (20, 5, 0), there.top, as_told)
    assert bar is not None
    assert bar.title == "Holds acme/chat · fp8 (computed as fp8_e4m3) 20 B, a · bf16 5 B"


def test_the_table_below_a_bar_has_its_colours() -> None:
    rows = held_rows(PoolHeld(tuple(held(f"n{n}", 1) for n in range(5)), others=2, others_bytes=1))
    assert [kind for _, kind in rows] == ["first", "second", "fourth", "third", "third"]


def test_colours_of_the_fleet_mean_the_same_in_every_bar() -> None:
    pools = FleetPools((held("a", 3, "fp8"), held("b", 2)), {"x": (3, 0, 0), "y": (0, 2, 7)})
    bars = [fleet_bar(told(), sizes, pools.top) for sizes in pools.by_agent.values()]
    assert [[one.kind for one in bar.pieces] for bar in bars if bar] == [["first"], ["second", "third"]]
    assert legend(pools) == [("first", "a · fp8", "3 B"), ("second", "b", "2 B"), ("third", "others", "7 B")]


def test_where_nothing_was_asked_no_line_is_drawn_and_no_rate_is_said() -> None:
    window = window_asked("1h")
    start = NOW.replace(second=0) - timedelta(minutes=2)
    hits, requests = charts([Step(start, Hits(1, 0, 0))], [], window, now=NOW)
    assert hits.title.startswith("Hit rate not known over 1 h")
    assert set(hits.series[0].values) == {None}
    assert sum(one or 0 for one in requests.series[0].values) == 1
    assert charts([], [], window, now=NOW) == []


def test_a_window_that_nobody_knows_is_the_last_hour() -> None:
    assert window_asked("7d").name == window_asked("").name == "1h"
