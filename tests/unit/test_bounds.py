"""What an organisation's people may change, and how far. tests/integration/test_policies.py has who is bound."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernels.formats import OFFERED
from tenants.bounds import BUILT_IN_BOUNDS, Bounds, bounds_of, out_of_bounds
from tenants.policy import BUILT_IN, FIELDS, Policy, Values

OPERATORS_ALONE = "only an operator may change this"


def bounds(**fields: Any) -> Bounds:
    return Bounds.model_validate(fields)


def problems(given: Bounds, before: Values, after: Values) -> dict[str, str]:
    return {one.field: one.message for one in out_of_bounds(given, before=before, after=after)}


def test_every_field_of_a_policy_can_be_bounded() -> None:
    assert tuple(Bounds.model_fields) == FIELDS


def test_a_field_without_a_bound_is_the_operators() -> None:
    for field in FIELDS:
        assert problems(bounds(), {}, {field: BUILT_IN[field]}) == {f"policy.{field}": OPERATORS_ALONE}


def test_a_bound_lets_in_what_is_within(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, Any, list[Any], list[Any]]] = [
        ("prefix_caching", {}, [True, False], []),
        ("ttl_seconds", {"min": 60, "max": 600}, [60, 600], [59, 601]),
        ("ttl_seconds", {"min": 60}, [60, 604_800], [59]),
        ("ttl_seconds", {}, [1, 604_800], []),
        ("max_age_seconds", {"max": 600}, [1, 600], [601, None]),
        ("max_age_seconds", {"min": 600}, [600, None], [599]),
        ("ttl_mode", {"allowed": ["sliding"]}, ["sliding"], ["absolute"]),
        ("kv_dtype", {"allowed": ["bf16", "fp8"]}, ["bf16", "fp8"], ["int4"]),
        ("kv_dtype", {"allowed": []}, [], ["fp8"]),
        ("request_kv_dtypes", {"allowed": ["int4", "fp8"]}, [[], ["fp8", "int4"]], [["int4", "bf16"]]),
        ("reserved_share", {"max": 0.25}, [0.0, 0.25], [0.2501]),
        ("limit_share", {"min": 0.1, "max": 0.5}, [0.1, 0.5], [0.0, 1.0]),
        ("weight", {"max": 2.0}, [0.001, 2.0], [2.001]),
        ("pin_share", {"max": 0.0}, [0.0], [0.01]),
        ("offload", {"allowed": ["none", "host"]}, ["none", "host"], ["disk"]),
    ]
    for field, bound, within, outside in cases:
        with subtests.test(msg=f"{field!r}, {bound!r}"):
            given = bounds(**{field: bound})
            for value in within:
                assert problems(given, {}, {field: value}) == {}
            for value in outside:
                assert list(problems(given, {}, {field: value})) == [f"policy.{field}"]


def test_a_refusal_gives_both_numbers() -> None:
    found = problems(bounds(ttl_seconds={"max": 600}), {}, {"ttl_seconds": 900})
    assert found == {"policy.ttl_seconds": "900 is more than 600, the most you may choose"}
    found = problems(bounds(kv_dtype={"allowed": ["bf16", "fp8"]}), {}, {"kv_dtype": "int4"})
    assert found == {"policy.kv_dtype": "int4 is not among what you may choose: bf16, fp8"}


def test_what_operators_set_out_of_bounds_may_stay() -> None:
    set_by_operators = {"ttl_seconds": 900, "reserved_share": 0.5}
    given = bounds(ttl_seconds={"max": 600}, weight={})
    assert problems(given, set_by_operators, {**set_by_operators, "weight": 2.0}) == {}


def test_a_bounded_field_may_be_left_out_again_and_no_other() -> None:
    before = {"ttl_seconds": 900, "reserved_share": 0.5}
    assert problems(bounds(ttl_seconds={"max": 600}), before, {}) == {"policy.reserved_share": OPERATORS_ALONE}


def test_saying_what_is_inherited_anyway_is_a_change_too() -> None:
    assert problems(bounds(), {}, {"reserved_share": 0.0})
    assert problems(bounds(), {"reserved_share": 0.0}, {})


def test_values_of_models_are_bounded_as_the_general_ones() -> None:
    given = bounds(ttl_seconds={"max": 600})
    before = {"models": {"kept": {"ttl_seconds": 900}, "lost": {"weight": 2.0, "ttl_seconds": 5}}}
    after = {"models": {"kept": {"ttl_seconds": 900}, "new": {"ttl_seconds": 601, "weight": 3.0}, "empty": {}}}
    assert set(problems(given, before, after)) == {
        "policy.models.lost.weight",
        "policy.models.new.ttl_seconds",
        "policy.models.new.weight",
    }


@given(st.lists(st.sampled_from(FIELDS), unique=True))
def test_nothing_changed_is_never_out_of_bounds(fields: list[str]) -> None:
    said = {field: BUILT_IN[field] for field in fields}
    assert problems(bounds(), {**said, "models": {"m": said}}, {**said, "models": {"m": said}}) == {}


def test_until_an_operator_says_otherwise_members_may_change_what_costs_nobody_else_anything() -> None:
    free = {field for field in FIELDS if getattr(BUILT_IN_BOUNDS, field) is not None}
    assert free == {"prefix_caching", "ttl_seconds", "ttl_mode", "max_age_seconds", "kv_dtype", "request_kv_dtypes"}
    assert problems(BUILT_IN_BOUNDS, {}, {"max_age_seconds": None}) != {}


def test_every_format_is_among_the_default_ones() -> None:
    assert [Policy(kv_dtype=dtype).kv_dtype for dtype in OFFERED] == list(OFFERED)


def test_bounds_of_revision_zero_are_the_built_in_ones_and_empty_later_ones_are_empty() -> None:
    assert bounds_of({}, 0) is BUILT_IN_BOUNDS
    assert bounds_of({}, 1) == Bounds()


def test_bounds_that_make_no_sense_are_refused(subtests: pytest.Subtests) -> None:
    cases: list[dict[str, Any]] = [
        {"ttl": {}},
        {"ttl_seconds": {"min": 10, "max": 9}},
        {"ttl_seconds": {"min": 0}},
        {"ttl_seconds": {"min": 1.5}},
        {"ttl_seconds": {"max": "600"}},
        {"ttl_seconds": {"most": 600}},
        {"ttl_seconds": 600},
        {"reserved_share": {"max": 1.1}},
        {"reserved_share": {"max": float("nan")}},
        {"weight": {"min": 0}},
        {"kv_dtype": {"allowed": ["fp16"]}},
        {"kv_dtype": {"allowed": "fp8"}},
        {"kv_dtype": {}},
        {"prefix_caching": {"allowed": [True]}},
    ]
    for wrong in cases:
        with subtests.test(msg=repr(wrong)), pytest.raises(ValidationError):
            bounds(**wrong)


def test_what_is_stored_of_bounds_says_the_same_again() -> None:
    given = bounds(ttl_seconds={"max": 600}, prefix_caching={}, offload={"allowed": []})
    assert bounds_of(given.model_dump(exclude_none=True), 1) == given
