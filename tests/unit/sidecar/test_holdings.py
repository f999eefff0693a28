"""What a report tells besides namespaces: bounded, nothing lost, and small enough at 10,000 namespaces."""

import random
from typing import Any

import pytest

from engine_agent.contracts.protocol import canonical_json
from engine_agent.contracts.wire import MOST_BATCH_BYTES
from engine_agent.sidecar import holdings
from engine_agent.sidecar.holdings import PairsTold, formats_most, pins_most
from tests.unit.sidecar.test_levels import Site, level


def lost(victim: str, blocks: int, by: str = "9", cause: str = "pressure") -> dict[str, Any]:
    return {"victim": victim, "by": by, "cause": cause, "blocks": blocks, "bytes": blocks * 10, "seconds_ago": 1.0}


def pin(name: str, held: int, wanted: int | None = 32, **more: Any) -> dict[str, Any]:
    told = {"id": name, "namespace": "12", "state": "active", "is_warming": False, "problem": ""}
    return {**told, "wanted_tokens": wanted, "resident_tokens": held, "resident_bytes": held, **more}


def test_pairs_that_lost_most_since_they_were_told_come_first_and_the_rest_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holdings, "MOST_PAIRS", 2)
    found = [lost("1", 5), lost("2", 9), lost("3", 7)]
    told = PairsTold("b1")
    first = told.due(found)
    assert [one["victim"] for one in first] == ["2", "3"]
    second = told.after(first).due(found)
    assert [one["victim"] for one in second] == ["1", "2"], "what there was no room for, then the one told longest ago"


def test_pairs_that_have_not_changed_are_told_again_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "MOST_AGAIN", 1)
    found, told, said = [lost("1", 5), lost("2", 9)], PairsTold("b1"), []
    for _ in range(4):
        due = told.due(found)
        told = told.after(due)
        said.append([one["victim"] for one in due])
    assert said == [["2", "1"], ["2"], ["1"], ["2"]]


def test_of_another_boot_nothing_was_told() -> None:
    told = PairsTold("b1").after([lost("1", 5)])
    assert told.of("b1").blocks
    assert not told.of("b2").blocks


def test_the_ledgers_last_word_on_each_pair_has_been_told_however_little_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes the highest count it was told of each pair ends with the ledger's own."""
    monkeypatch.setattr(holdings, "MOST_PAIRS", 3)
    dice, counts, told = random.Random(1), dict.fromkeys(map(str, range(20)), 1), PairsTold("b1")
    heard: dict[str, int] = {}
    for step in range(60):
        if step < 40:
            counts[dice.choice(list(counts))] += dice.randint(1, 5)
        due = told.due([lost(victim, blocks) for victim, blocks in counts.items()])
        assert len(due) <= 3
        told = told.after(due)
        heard |= {one["victim"]: max(one["blocks"], heard.get(one["victim"], 0)) for one in due}
    assert heard == counts


def test_formats_are_of_those_that_hold_most_among_those_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "MOST_FORMATS", 1)
    found = {"1": {"fp8": 5, "int4": 5}, "2": {"fp8": 9}, "3": {"fp8": 99}}
    assert formats_most(found, {"1": {}, "2": {}, "4": {}}) == {"1": {"fp8": 5, "int4": 5}}


def test_pins_of_which_something_is_missing_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "MOST_PINS", 3)
    found = [pin("a", 32), pin("b", 0, None, state="content_missing"), pin("c", 16), pin("d", 32, resident_bytes=99)]
    assert [one["id"] for one in pins_most(found)] == ["c", "b", "d"]
    assert pins_most([pin("a", 0, problem="x" * 500)])[0]["problem"] == "x" * holdings.MOST_PROBLEM_CHARACTERS


def test_an_engine_of_before_says_less_and_is_told_of_as_it_is() -> None:
    (report,) = Site().look(0.0)
    assert not report.told.keys() & {"evictions", "formats", "pins"}


def test_a_report_of_an_engine_with_10000_busy_namespaces_fits_into_one_batch() -> None:
    many = {str(10_000_000 + number): level(2**34 + number, evicted_blocks=10**9) for number in range(10_000)}
    site = Site(namespaces=many)
    site.more = {
        "evictions": [lost(name, 10**9, by="10000001") for name in list(many)[:4_096]],
        "formats": {name: {"fp8": 2**33, "int4": 2**33} for name in many},
        "pins": [pin(f"{number:036}", 0, problem="p" * 300) for number in range(2_000)],
    }
    (report,) = site.look(0.0)
    told = report.told
    assert (len(told["evictions"]), len(told["formats"]), len(told["pins"])) == (512, 1_000, 256)
    assert len(canonical_json(told)) < MOST_BATCH_BYTES - 64 * 1024
