"""What a policy may say, and what three levels of it add up to. Publishing is tests/integration/test_policies.py."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from engine_agent.contracts.policy_fields import LEVELS
from tenants.policy import (
    BUILT_IN,
    FIELDS,
    MAX_MODELS,
    Policy,
    Values,
    changes_between,
    contradictions,
    effective,
    effective_document,
    effective_hash,
    effective_values,
    models_named,
)
from tests.support.case_names import case_name

NAN, INFINITY = float("nan"), float("inf")
GOOD: dict[str, list[Any]] = {
    "prefix_caching": [True, False],
    "ttl_seconds": [1, 300, 604_800],
    "ttl_mode": ["sliding", "absolute"],
    "max_age_seconds": [1, 31_536_000, None],
    "kv_dtype": ["bf16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "k8v4", "int4", "nvfp4"],
    "request_kv_dtypes": [[], ["int4"], ["bf16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "k8v4", "int4", "nvfp4"]],
    "reserved_share": [0, 0.0, 1e-9, 0.9, 1, 1.0],
    "limit_share": [0.0, 0.5, 1.0],
    "weight": [0.001, 1, 1.0, 1000.0],
    "pin_share": [0.0, 1.0],
    "offload": ["none", "host", "disk"],
}
SHARE_BAD = [-0.001, 1.001, 1e9, NAN, INFINITY, "0.5", True, None, [0.5]]
BAD: dict[str, list[Any]] = {
    "prefix_caching": [1, 0, "true", None],
    "ttl_seconds": [0, -1, 604_801, 10**30, 300.0, 1e9, NAN, "300", True, None, [300]],
    "ttl_mode": ["Sliding", "", "slide", None, True, 1],
    "max_age_seconds": [0, 31_536_001, 300.0, "300", False],
    "kv_dtype": ["FP8", "fp16", "", None, 8, ["fp8"]],
    "request_kv_dtypes": [["int4", "int4"], ["fp16"], "int4", None, {"int4": True}, [None]],
    "reserved_share": SHARE_BAD,
    "limit_share": SHARE_BAD,
    "weight": [0, -1.0, 0.0009, 1000.1, NAN, INFINITY, "1", True, None],
    "pin_share": SHARE_BAD,
    "offload": ["ssd", "NONE", None, False],
}
SAID = {field: st.sampled_from([one for one in values if type(one) is not int or "share" not in field])
        for field, values in GOOD.items()}  # fmt: skip
MODELS = ("qwen3-8b", "org/model@v1", "m")
FIELD_SETS = st.fixed_dictionaries({}, optional=SAID)
LEVEL = st.builds(
    lambda own, models: {**own, "models": models} if models else own,
    FIELD_SETS,
    st.dictionaries(st.sampled_from(MODELS), FIELD_SETS, max_size=2),
)
CHAINS = st.lists(LEVEL, min_size=3, max_size=3)


def pairs(table: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(field, value) for field, values in table.items() for value in values]


def said(**fields: Any) -> dict[str, Any]:
    return Policy.model_validate(fields).said()


def refused(given: Any) -> list[str]:
    """The places of what is wrong."""
    with pytest.raises(ValidationError) as caught:
        Policy.model_validate(given)
    return [".".join(map(str, error["loc"])) for error in caught.value.errors()]


def test_the_tables_above_leave_no_field_out() -> None:
    assert set(GOOD) == set(BAD) == set(FIELDS)


def test_every_field_takes_its_whole_range(subtests: pytest.Subtests) -> None:
    for field, value in pairs(GOOD):
        with subtests.test(msg=f"{field!r}, {value!r}"):
            assert said(**{field: value}) == {field: value}
            assert said(models={"m": {field: value}}) == {"models": {"m": {field: value}}}


def test_no_field_takes_another_value_or_another_type(subtests: pytest.Subtests) -> None:
    for field, value in pairs(BAD):
        with subtests.test(msg=f"{field!r}, {value!r}"):
            assert refused({field: value})[0].startswith(field)
            assert refused({"models": {"m": {field: value}}})[0].startswith(f"models.m.{field}")


def test_the_defaults_are_the_products() -> None:
    assert BUILT_IN == {
        "prefix_caching": True,
        "ttl_seconds": 300,
        "ttl_mode": "sliding",
        "max_age_seconds": 86_400,
        "kv_dtype": "fp8",
        "request_kv_dtypes": ["int4"],
        "reserved_share": 0.0,
        "limit_share": 1.0,
        "weight": 1.0,
        "pin_share": 0.0,
        "offload": "none",
    }


def test_every_wrong_field_is_named_at_once() -> None:
    assert refused({"ttl_seconds": 0, "weight": "1", "ttl": 5}) == ["ttl_seconds", "weight", "ttl"]


def test_a_number_equal_to_another_is_stored_and_hashed_alike() -> None:
    whole, fraction = said(reserved_share=1, weight=2), said(reserved_share=1.0, weight=2.0)
    assert json.dumps(whole) == json.dumps(fraction)
    assert json.dumps(said(reserved_share=-0.0)) == json.dumps(said(reserved_share=0.0))


def test_models_are_named_once_and_not_inside_each_other() -> None:
    assert refused({"models": {"m": {"models": {}}}}) == ["models.m.models"]
    assert refused({"models": ["m"]}) == ["models"]
    assert refused({"models": None}) == ["models"]
    assert refused({"models": {"m": None}}) == ["models.m"]


@pytest.mark.parametrize("name", ["m", "Qwen/Qwen3-8B", "org/model@v1+x", "a:b.c_d-e", "x" * 200, "0"])
def test_a_models_name_is_one(name: str) -> None:
    assert said(models={name: {}}) == {"models": {name: {}}}


def test_what_is_no_models_name_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["", "-m", "/m", "m n", "m\n", "m\x00", "é", "x" * 201, "m?", "m#", ".."]
    for name in cases:
        with subtests.test(msg=case_name(name)):
            assert refused({"models": {name: {}}})


def test_a_policy_holds_so_many_models_and_no_more() -> None:
    assert len(said(models={f"m{n}": {} for n in range(MAX_MODELS)})["models"]) == MAX_MODELS
    assert refused({"models": {f"m{n}": {} for n in range(MAX_MODELS + 1)}}) == ["models"]


@pytest.mark.parametrize("given", [None, [], "{}", 1, True])
def test_a_policy_is_an_object(given: Any) -> None:
    assert refused(given)


def test_what_was_not_said_is_not_stored() -> None:
    assert said() == {}
    assert said(ttl_seconds=300) == {"ttl_seconds": 300}
    assert said(max_age_seconds=None) == {"max_age_seconds": None}


# What levels add up to


def naive(chain: Sequence[Values], model: str | None, field: str) -> tuple[Any, str, str | None]:
    """Looked for from the inside out; the code lays levels over each other from the outside in."""
    for name, level in reversed(list(zip(LEVELS, chain, strict=True))):
        if model is not None and field in level.get("models", {}).get(model, {}):
            return level["models"][model][field], "model", name
    for name, level in reversed(list(zip(LEVELS, chain, strict=True))):
        if field in level:
            return level[field], name, None
    return BUILT_IN[field], "fleet", None


@given(CHAINS, st.sampled_from((None, *MODELS)))
@settings(max_examples=100, deadline=None)
def test_what_is_in_force_is_what_a_naive_search_finds(chain: list[dict[str, Any]], model: str | None) -> None:
    found = effective(chain, model)
    assert set(found.values) == set(found.origin) == set(FIELDS)
    for field in FIELDS:
        value, origin, via = naive(chain, model, field)
        assert (found.values[field], found.origin[field], found.via.get(field)) == (value, origin, via)


@given(CHAINS)
@settings(max_examples=100, deadline=None)
def test_the_document_of_what_is_in_force_has_every_model_in_full(chain: list[dict[str, Any]]) -> None:
    document = effective_document(chain)
    assert set(document.get("models", {})) == set(models_named(chain))
    for model, values in document.get("models", {}).items():
        assert values == effective_values(chain, model)
        assert set(values) == set(FIELDS)


@pytest.mark.parametrize("inner", range(3))
def test_the_value_of_a_model_beats_every_general_one_whichever_level_says_it(inner: int) -> None:
    chain: list[dict[str, Any]] = [{"ttl_seconds": 10}, {"ttl_seconds": 20}, {"ttl_seconds": 30}]
    chain[inner]["models"] = {"m": {"ttl_seconds": 5}}
    found = effective(chain, "m")
    assert (found.values["ttl_seconds"], found.origin["ttl_seconds"]) == (5, "model")
    assert found.via == {"ttl_seconds": LEVELS[inner]}
    assert effective(chain).values["ttl_seconds"] == effective(chain, "other").values["ttl_seconds"] == 30


def test_null_is_a_value_and_absence_inherits() -> None:
    chain: list[dict[str, Any]] = [{"max_age_seconds": 60}, {"max_age_seconds": None}, {}]
    found = effective(chain)
    assert (found.values["max_age_seconds"], found.origin["max_age_seconds"]) == (None, "organisation")


def test_combining_levels_changes_none_of_them_nor_the_defaults() -> None:
    chain: list[dict[str, Any]] = [{"models": {"m": {"weight": 2.0}}}, {"weight": 3.0}, {"models": {"n": {}}}]
    before = json.dumps([chain, BUILT_IN])
    effective_document(chain)["models"]["m"]["weight"] = 9
    assert json.dumps([chain, BUILT_IN]) == before


# Hashes


@given(CHAINS)
@settings(max_examples=50, deadline=None)
def test_what_is_equal_has_equal_hashes_however_it_was_said(chain: list[dict[str, Any]]) -> None:
    turned = [dict(reversed(level.items())) for level in json.loads(json.dumps(chain))]
    assert effective_hash(turned) == effective_hash(chain)
    if not models_named(chain):
        assert effective_hash([effective_values(chain), {}, {}]) == effective_hash(chain)


def test_the_hash_is_the_same_today_and_tomorrow() -> None:
    assert effective_hash([{}, {}, {}]) == "fc36afbaab735ebf1a35203ab31c12c751c2ff0bb9f2cb3d8cb2f6ec69f6cd3f"


@pytest.mark.parametrize(("field", "value"), [("ttl_seconds", 301), ("weight", 1.5), ("max_age_seconds", None)])
def test_another_value_has_another_hash(field: str, value: Any) -> None:
    assert effective_hash([{field: value}]) != effective_hash([{}])
    assert effective_hash([{"models": {"m": {field: value}}}], "m") == effective_hash([{field: value}], "m")


# Differences


def changed(before: Values, after: Values) -> list[tuple[str, str | None, Any, Any]]:
    found = changes_between([{}, {}, before], [{}, {}, after])
    return [(one.field, one.model, one.before, one.after) for one in found]


def test_a_difference_tells_value_and_origin_before_and_after() -> None:
    (one,) = changes_between([{"ttl_seconds": 60}, {}, {}], [{"ttl_seconds": 60}, {}, {"ttl_seconds": 30}])
    assert (one.field, one.before, one.after) == ("ttl_seconds", 60, 30)
    assert (one.before_origin, one.after_origin) == ("fleet", "namespace")


def test_saying_what_was_inherited_anyway_is_no_difference() -> None:
    assert changed({}, {"ttl_seconds": 300, "models": {"m": {"ttl_seconds": 300}}}) == []


def test_a_model_that_follows_the_general_value_is_not_told_again() -> None:
    models = {"m": {"weight": 2.0}}
    before, after = {"models": models}, {"models": models, "ttl_seconds": 60, "weight": 5.0}
    assert changed(before, after) == [("ttl_seconds", None, 300, 60), ("weight", None, 1.0, 5.0)]


def test_a_model_that_loses_its_own_value_is_told() -> None:
    assert changed({"models": {"m": {"ttl_seconds": 60}}}, {}) == [("ttl_seconds", "m", 60, 300)]


@given(CHAINS, CHAINS)
@settings(max_examples=100, deadline=None)
def test_no_difference_in_force_goes_untold(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    told = {(one.field, one.model) for one in changes_between(before, after)}
    for model in (None, *models_named([*before, *after])):
        old, new = effective_values(before, model), effective_values(after, model)
        for field in FIELDS:
            differs = old[field] != new[field]
            assert not differs or (field, model) in told or (field, None) in told
            assert differs or (field, model) not in told


# What cannot be true together


def contradicted(*chain: Values) -> list[tuple[str, str]]:
    return [(one.field, one.message) for one in contradictions(chain)]


def test_what_is_built_in_contradicts_nothing() -> None:
    assert contradicted({}) == []


def test_a_ttl_ends_before_the_age_does() -> None:
    assert contradicted({"ttl_seconds": 60, "max_age_seconds": 60}) == []
    assert contradicted({"ttl_seconds": 604_800, "max_age_seconds": None}) == []
    ((field, message),) = contradicted({"max_age_seconds": 60}, {"ttl_seconds": 61})
    assert (field, message) == ("policy.ttl_seconds", "61 s is longer than max_age_seconds, which is 60 s")


@pytest.mark.parametrize("share", ["reserved_share", "pin_share"])
def test_what_is_promised_is_within_the_limit(share: str) -> None:
    assert contradicted({share: 0.5, "limit_share": 0.5}) == []
    ((field, message),) = contradicted({"limit_share": 0.4}, {share: 0.5})
    assert (field, message) == (f"policy.{share}", "0.5 is more than limit_share, which is 0.4")


def test_a_contradiction_of_one_model_names_it() -> None:
    ((field, _),) = contradicted({"max_age_seconds": 100}, {"ttl_seconds": 50, "models": {"m": {"ttl_seconds": 200}}})
    assert field == "policy.models.m.ttl_seconds"


def test_all_contradictions_are_told() -> None:
    found = contradicted(
        {"ttl_seconds": 9, "max_age_seconds": 8, "limit_share": 0, "pin_share": 1, "reserved_share": 1}
    )
    assert len(found) == 3
