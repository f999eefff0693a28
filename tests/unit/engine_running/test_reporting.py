"""What the engine tells of itself: of whom there is something to tell, and no number that others tell otherwise."""

from pathlib import Path
from typing import Any

from engine_agent.engine.reporting import engine_stats
from tests.engines.driving import GREEDY, Driven, drive, make_prompt
from tests.engines.snapshots import make_snapshot


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
