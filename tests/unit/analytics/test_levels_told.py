"""What levels tell besides numbers, piece by piece: what makes no sense is refused by field, and nothing is raised."""

import json
from typing import Any
from uuid import UUID

import pytest

from controlplane.analytics.levels_told import (
    Lost,
    Pair,
    formats_read,
    namespaces_of,
    pair_read,
    pairs_of,
    pin_read,
)
from controlplane.analytics.rows import Problem
from tests.support.case_names import case_name

ID = "0190f3b8-7c1e-7000-8000-000000000001"
PAIR = {"victim": "1", "by": "2", "cause": "pressure", "blocks": 3, "bytes": 30, "seconds_ago": 2.5}
PIN: dict[str, Any] = {
    **{"id": ID, "namespace": "1", "state": "active", "is_warming": False, "problem": ""},
    **{"wanted_tokens": 32, "resident_tokens": 16, "resident_bytes": 160},
}


def test_a_pair_is_read_with_when_it_last_happened() -> None:
    assert pair_read("evictions.0", PAIR, 100.0) == (Pair("1", "2", "pressure"), Lost(3, 30, 97.5))
    assert not isinstance(pair_read("x", {**PAIR, "victim": "*", "by": "*"}, 0.0), Problem)


def test_what_a_later_version_tells_of_a_pair_or_a_pin_besides_is_passed_over() -> None:
    assert pair_read("x", {**PAIR, "weather": "fine"}, 100.0) == pair_read("x", PAIR, 100.0)
    assert pin_read("x", {**PIN, "weather": "fine"}) == pin_read("x", PIN)


def test_a_pair_that_makes_no_sense_is_refused_by_its_field(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, Any]] = [
        ("victim", 1),
        ("victim", "1" * 19),
        ("victim", "luminet/nobody"),
        ("by", "²"),
        ("by", None),
        ("cause", "spite"),
        ("cause", ["pressure"]),
        ("blocks", -1),
        ("blocks", True),
        ("blocks", 2**40 + 1),
        ("bytes", 2**63),
        ("bytes", 1.5),
        ("seconds_ago", -1),
        ("seconds_ago", float("nan")),
        ("seconds_ago", 10**400),
        ("seconds_ago", "1"),
    ]
    for name, bad in cases:
        with subtests.test(msg=case_name(name, bad)):
            found = pair_read("evictions.7", {**PAIR, name: bad}, 100.0)
            assert isinstance(found, Problem)
            assert found.field == f"evictions.7.{name}"


@pytest.mark.parametrize("bad", [None, [], {}, {"victim": "1"}, "pair"])
def test_what_is_no_pair_and_no_pin_is_refused_as_a_whole(bad: Any) -> None:
    assert isinstance(pair_read("x", bad, 0.0), Problem)
    assert isinstance(pin_read("x", bad), Problem)


def test_formats_come_to_what_is_resident_or_are_refused() -> None:
    assert formats_read("x", {"fp8": 4, "int4": 6}, 10) == {"fp8": 4, "int4": 6}
    for bad in (
        {"fp8": 4},
        {"fp8": -1, "int4": 11},
        {"FP 8": 10},
        {"fp8": "10"},
        ["fp8"],
        {f"f{n}": 0 for n in range(17)},
    ):
        assert isinstance(formats_read("x", bad, 10), Problem)


def test_a_pin_is_read_by_its_id() -> None:
    found = pin_read("pins.0", PIN)
    assert not isinstance(found, Problem)
    assert found.id == UUID(ID)
    assert (found.state, found.wanted_tokens, found.resident_tokens) == ("active", 32, 16)
    missing = pin_read("pins.0", {**PIN, "state": "content_missing", "wanted_tokens": None})
    assert not isinstance(missing, Problem)


def test_a_pin_that_makes_no_sense_is_refused_by_its_field(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, Any]] = [
        ("id", "p"),
        ("id", 7),
        ("namespace", None),
        ("state", "x" * 21),
        ("state", "a\0b"),
        ("problem", json.loads('"\\ud800"')),
        ("problem", "x" * 201),
        ("is_warming", 1),
        ("wanted_tokens", -1),
        ("resident_tokens", None),
        ("resident_bytes", 2**60),
    ]
    for name, bad in cases:
        with subtests.test(msg=case_name(name, bad)):
            found = pin_read("pins.3", {**PIN, name: bad})
            assert isinstance(found, Problem)
            assert found.field == f"pins.3.{name}"


@pytest.mark.parametrize(
    "told", [{}, {"evictions": None, "pins": 7}, {"evictions": [1, {}], "pins": [{"namespace": 5}]}]
)
def test_whatever_is_told_names_are_looked_for_without_harm(told: dict[str, Any]) -> None:
    assert namespaces_of(told) == set()
    assert pairs_of(told) == set()


def test_all_namespaces_that_are_spoken_of_are_looked_up() -> None:
    assert namespaces_of({"evictions": [PAIR], "pins": [{**PIN, "namespace": "9"}]}) == {"1", "2", "9"}
    assert pairs_of({"evictions": [PAIR, {**PAIR, "cause": "spite"}]}) == {Pair("1", "2", "pressure")}
