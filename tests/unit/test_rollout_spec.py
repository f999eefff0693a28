"""How a rollout may be asked for."""

from typing import Any

import pytest
from pydantic import ValidationError

from controlplane.rollouts.spec import ALL_AT_ONCE, LabelStep, RolloutSpec, steps_read


def spec(**given: Any) -> RolloutSpec:
    return RolloutSpec.model_validate(given)


def test_left_out_it_goes_to_everybody_at_once() -> None:
    assert ALL_AT_ONCE.stages == spec(strategy="all", steps=[100]).stages == (100,)


def test_a_canary_has_steps_of_its_own_or_the_usual_ones() -> None:
    assert spec(strategy="canary").stages == (10, 50, 100)
    assert spec(strategy="canary", steps=[{"labels": {"tier": "canary"}}, 100]).stages == (
        LabelStep(labels={"tier": "canary"}),
        100,
    )


def test_steps_are_stored_and_read_as_they_are() -> None:
    asked = spec(strategy="canary", steps=[{"labels": {"tier": "canary"}}, 30, 100])
    assert asked.stored() == [{"labels": {"tier": "canary"}}, 30, 100]
    assert steps_read(asked.stored()) == asked.stages


def test_what_makes_no_sense_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"strategy": "canary", "steps": [10, 50]}, "the last has to be 100"),
        ({"strategy": "canary", "steps": []}, "the last has to be 100"),
        ({"strategy": "canary", "steps": [50, 10, 100]}, "larger than the one before"),
        ({"strategy": "canary", "steps": [50, 50, 100]}, "larger than the one before"),
        ({"strategy": "all", "steps": [10, 100]}, "only a canary has steps"),
        ({"strategy": "canary", "steps": [0, 100]}, "greater than or equal to 1"),
        ({"strategy": "canary", "steps": [{"labels": {}}, 100]}, "at least 1 item"),
        ({"strategy": "blue-green"}, "'all' or 'canary'"),
        ({"strategy": "canary", "bake_seconds": 0}, "greater than or equal to 1"),
        ({"strategy": "canary", "guards": {"hit_ratio_drop": 1.5}}, "less than or equal to 1"),
        ({"strategy": "canary", "guards": {"latency": 1}}, "Extra inputs"),
    ]
    for given, words in cases:
        with subtests.test(msg=f"{given!r}, {words!r}"), pytest.raises(ValidationError, match=words):
            spec(**given)
