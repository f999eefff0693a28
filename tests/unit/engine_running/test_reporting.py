"""What the engine tells of itself: of whom there is something to tell, and no number that others tell otherwise."""

from pathlib import Path
from typing import Any

from engine_agent.engine.foretelling import CURVES, TTLS, foretellers
from engine_agent.engine.reporting import engine_levels, engine_stats
from tests.engines.driving import GREEDY, Driven, drive, make_prompt
from tests.engines.snapshots import make_snapshot

SMALL_POOL = 20  # pages


def _told(driven: Driven) -> dict[str, Any]:
    return {one["namespace"]: one for one in engine_stats(driven.engine)["namespaces"]}


def test_a_namespace_is_told_of_once_there_is_something_to_tell(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {}, "two": {}, "three": {}}), most_running=1)
    assert _told(driven) == {}
    driven.ask(make_prompt(40), max_tokens=2, **GREEDY)
    driven.ask(make_prompt(40), namespace="two", max_tokens=2, **GREEDY)
    driven.engine.step()
    told = _told(driven)
    assert {name: (one["running"], one["waiting"]) for name, one in told.items()} == {"one": (1, 0), "two": (0, 1)}
    driven.run()
    assert _told(driven).keys() == {"one", "two"}
    driven.engine.apply(make_snapshot({"one": {}, "two": {}, "three": {}}, epochs={"one": 2}))
    purged = _told(driven)["one"]  # nothing is resident, but something happened
    assert (purged["resident_bytes"], purged["epoch"], purged["counters"]["purged_blocks"]) == (0, 2, 2)


def test_what_is_told_of_a_namespace_is_what_the_block_manager_knows(llama: Path) -> None:
    driven = drive(llama)
    driven.answer(make_prompt(40), max_tokens=1)
    told, known = _told(driven)["one"], driven.engine.manager.stats("one")
    assert told["resident_bytes_by_dtype"] == {"fp32": known.resident_bytes}
    assert (told["resident_bytes"], told["resident_blocks"]) == (known.resident_bytes, known.resident_blocks)
    assert told["counters"]["inserted_blocks"] == known.counters.inserted_blocks == 2
    assert told["tiers"][0]["limit_bytes"] == known.tiers[0].limit_bytes


def test_tokens_asked_and_cached_are_the_journals_to_tell(llama: Path) -> None:
    driven = drive(llama)
    driven.answer(make_prompt(40), max_tokens=1)
    assert driven.engine.manager.stats("one").counters.prompt_tokens == 40
    assert not _told(driven)["one"]["counters"].keys() & {"requests", "prompt_tokens", "cached_tokens"}


def test_levels_are_what_is_held_and_what_left(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {}, "two": {}}))
    assert engine_levels(driven.engine)["namespaces"] == {}
    driven.answer(make_prompt(40), max_tokens=1)
    told = engine_levels(driven.engine)
    held = driven.engine.manager.stats("one").resident_bytes
    gone = dict.fromkeys(("host_bytes", "expired_blocks", "evicted_blocks", "quota_blocks", "purged_blocks"), 0)
    assert told["namespaces"] == {"one": {"resident_bytes": held, **gone}}
    used = driven.engine.manager.pool().used_bytes
    assert (told["boot"], told["pool"]["used_bytes"], told["preemptions"]) == (driven.engine.boot, used, 0)
    driven.engine.apply(make_snapshot({"one": {}, "two": {}}, epochs={"one": 2}))
    assert engine_levels(driven.engine)["namespaces"] == {"one": {"resident_bytes": 0, **gone, "purged_blocks": 2}}


def test_curves_say_what_the_block_manager_foretells(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {"kv_dtype": "fp32"}, "two": {"kv_dtype": "fp32"}}))
    for _ in range(3):
        driven.answer(make_prompt(40), max_tokens=1)
    found = foretellers(driven.engine.manager, ["one", "two", "gone"])
    assert list(found) == ["one"], "of the others there is nothing to tell"
    told = found["one"].told(pause=lambda seconds: None)
    assert (told["prompt_tokens"], told["ttls"], len(told["curves"])) == (120, list(TTLS), len(CURVES))
    sliding = told["curves"][0]
    foretold = driven.engine.manager.what_if("one", ttl_seconds=TTLS[0])
    assert foretold
    assert abs(sliding["hit_ratios"][0] - foretold) < 1e-6
    for curve in told["curves"]:
        assert len(curve["hit_ratios"]) == len(curve["resident_bytes"]) == len(TTLS)
        assert curve["hit_ratios"] == sorted(curve["hit_ratios"]), "a longer TTL finds no less"


def test_curves_are_of_the_moment_in_which_they_were_asked_for(llama: Path) -> None:
    driven = drive(llama)
    driven.answer(make_prompt(40), max_tokens=1)
    one = foretellers(driven.engine.manager, ["one"])["one"]
    before = one.told(pause=lambda seconds: None)
    for _ in range(3):
        driven.answer(make_prompt(40), max_tokens=1)
    assert one.told(pause=lambda seconds: None) == before
    assert foretellers(driven.engine.manager, ["one"])["one"].told(pause=lambda seconds: None) != before


def _flood(driven: Driven) -> None:
    """ "one" holds most of the pool when "two" begins to need it, and then needs more than there is."""
    for seed in range(9):
        driven.answer(make_prompt(120, seed=seed), namespace="one" if seed < 2 else "two", max_tokens=1)


def test_whose_requests_took_whose_blocks_is_told_as_pairs(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {}, "two": {}}), pool_pages=SMALL_POOL)
    assert engine_levels(driven.engine)["evictions"] == []
    _flood(driven)
    pairs = {(one["victim"], one["by"], one["cause"]): one for one in engine_levels(driven.engine)["evictions"]}
    assert set(pairs) == {("one", "two", "pressure"), ("two", "two", "pressure")}
    counters = {name: driven.engine.manager.stats(name).counters.evicted_blocks for name in ("one", "two")}
    assert {victim: one["blocks"] for (victim, *_), one in pairs.items()} == counters
    assert all(one["bytes"] > 0 and 0 <= one["seconds_ago"] < 60 for one in pairs.values())


def test_who_is_no_tenant_any_more_is_told_of_as_a_victim_no_longer(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {}, "two": {}}), pool_pages=SMALL_POOL)
    _flood(driven)
    driven.engine.apply(make_snapshot({"two": {}}))
    assert {one["victim"] for one in engine_levels(driven.engine)["evictions"]} == {"two"}


def test_formats_add_up_to_what_is_resident(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {}, "two": {}}))
    assert engine_levels(driven.engine)["formats"] == {}
    driven.answer(make_prompt(40), max_tokens=1)
    told = engine_levels(driven.engine)
    assert told["formats"] == {"one": {"fp32": told["namespaces"]["one"]["resident_bytes"]}}


def test_pins_say_in_tokens_what_is_there_and_what_is_missing(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {"pin_share": 0.5}}, pins={"p": "one"}))
    (missing,) = engine_levels(driven.engine)["pins"]
    assert (missing["id"], missing["namespace"], missing["state"]) == ("p", "one", "content_missing")
    assert (missing["wanted_tokens"], missing["resident_tokens"], missing["resident_bytes"]) == (None, 0, 0)
    driven.engine.pins.set_content("p", make_prompt(40))
    driven.engine.tick()
    assert engine_levels(driven.engine)["pins"][0]["is_warming"]
    driven.run()
    (held,) = engine_levels(driven.engine)["pins"]
    assert (held["state"], held["wanted_tokens"], held["resident_tokens"]) == ("active", 32, 32)
    assert held["resident_bytes"] > 0
    assert not held["is_warming"]
