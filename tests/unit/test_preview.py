"""What a preview says in words and numbers. What it looks at is tests/integration/test_policies.py."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.policy import Values, changes_between, effective_values
from tenants.preview import AgentPool, duration, effects_of, shares_banded, shares_resolved, shown, warnings_for

GIB = 1024**3


def warned(before: Values, after: Values) -> list[tuple[str, str]]:
    changes = changes_between([before], [after])
    return [(one.code, one.field) for one in warnings_for(changes, effective_values([after]))]


def messages(before: Values, after: Values) -> list[str]:
    return [one.message for one in warnings_for(changes_between([before], [after]), effective_values([after]))]


def pool(**block_bytes: int) -> AgentPool:
    return AgentPool("agent-1", "m", pool_bytes=10 * GIB, block_tokens=16, block_bytes=block_bytes)


def resolved(pool: AgentPool, **fields: Any) -> dict[str, tuple[int, int, float]]:
    found = shares_resolved(effective_values([fields]), pool)
    return {one.field: (one.blocks, one.tokens, one.gib) for one in found}


def test_shares_become_whole_blocks_tokens_and_gib() -> None:
    found = resolved(pool(fp8=1024**2), reserved_share=0.25, limit_share=0.5, pin_share=0.00001)
    assert found == {
        "reserved_share": (2560, 40_960, 2.5),
        "limit_share": (5120, 81_920, 5.0),
        "pin_share": (0, 0, 0.0),
    }


def test_blocks_are_those_of_the_format_in_force() -> None:
    assert resolved(pool(fp8=1024**2, int4=1024**2 // 2), kv_dtype="int4")["limit_share"][0] == 20_480


def test_an_agent_that_cannot_do_the_format_promises_nothing() -> None:
    assert resolved(pool(bf16=1024**2), kv_dtype="fp8") == {}


def sized(name: str, pool_bytes: int, **block_bytes: int) -> AgentPool:
    return AgentPool(name, "m", pool_bytes, 16, block_bytes)


def test_bands_run_from_smallest_pool_to_largest() -> None:
    pools = [sized("agent-1", 10 * GIB, fp8=1024**2), sized("agent-2", 70 * GIB, fp8=1024**2), sized("x", 0, fp8=1)]
    found = {one.field: one for one in shares_banded(effective_values([{"reserved_share": 0.25}]), pools)}
    band = found["reserved_share"]
    assert (band.bytes_least, band.bytes_most) == (2 * GIB, 32 * GIB)
    assert (band.tokens_least, band.tokens_most) == (32_768, 524_288)
    assert list(shares_banded(effective_values([{"kv_dtype": "bf16"}]), pools)) == []


@given(st.integers(1, 2**40), st.integers(0, 2**20), st.floats(0, 1))
def test_bands_tell_of_a_pool_its_power_of_two(pool_bytes: int, more: int, share: float) -> None:
    """Whatever share somebody tries, pools of one power look alike."""
    other = min(pool_bytes + more, 2 ** pool_bytes.bit_length() - 1)
    values = effective_values([{"reserved_share": share}])
    one, two = (list(shares_banded(values, [sized("a", size, fp8=4096)])) for size in (pool_bytes, other))
    assert one == two
    exact = int(pool_bytes * share)
    (band,) = (each for each in one if each.field == "reserved_share")
    assert band.bytes_least <= exact <= band.bytes_most


@pytest.mark.parametrize(
    ("before", "after", "code", "field"),
    [
        ({}, {"kv_dtype": "int4"}, "cold_cache", "kv_dtype"),
        ({}, {"models": {"m": {"kv_dtype": "int4"}}}, "cold_cache", "kv_dtype"),
        ({}, {"prefix_caching": False}, "caching_off", "prefix_caching"),
        ({}, {"ttl_seconds": 299}, "expires_now", "ttl_seconds"),
        ({"max_age_seconds": None}, {"max_age_seconds": 31_536_000}, "expires_now", "max_age_seconds"),
        ({}, {"limit_share": 0.9}, "evicts_now", "limit_share"),
        ({}, {"request_kv_dtypes": []}, "requests_refused", "request_kv_dtypes"),
    ],
)
def test_what_hurts_is_warned_of(before: Values, after: Values, code: str, field: str) -> None:
    assert warned(before, after) == [(code, field)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({}, {"ttl_seconds": 301}),
        ({}, {"max_age_seconds": None}),
        ({"limit_share": 0.5}, {}),
        ({"prefix_caching": False}, {}),
        ({}, {"request_kv_dtypes": ["int4", "fp8"]}),
        ({}, {"kv_dtype": "fp8"}),
    ],
)
def test_what_does_not_hurt_is_not_warned_of(before: Values, after: Values) -> None:
    assert warned(before, after) == []


def test_what_makes_no_sense_together_is_warned_of_whether_it_changed_or_not() -> None:
    pins_hold_nothing, no_room = {"pin_share": 0.1, "prefix_caching": False}, {"limit_share": 0.0}
    assert warned(pins_hold_nothing, pins_hold_nothing) == [("pins_without_caching", "pin_share")]
    assert warned(no_room, no_room) == [("no_room", "limit_share")]


def test_a_warning_says_what_of_which_model() -> None:
    (message,) = messages({}, {"models": {"m": {"kv_dtype": "int4"}}})
    assert message.startswith("fp8 → int4 for m is a cold cache")
    (message,) = messages({"request_kv_dtypes": ["int8", "bf16"]}, {"request_kv_dtypes": []})
    assert message == "Requests that ask for bf16, int8 get 400 from now on."


def test_effects_are_sentences_with_units() -> None:
    changes = changes_between([{}], [{"ttl_seconds": 3600, "limit_share": 0.5, "models": {"m": {"offload": "host"}}}])
    assert list(effects_of(changes)) == [
        "ttl_seconds: 5 min → 1 h",
        "limit_share: 100.0% of each pool → 50.0% of each pool",
        "offload (model m): none → host",
    ]


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("max_age_seconds", None, "none"),
        ("prefix_caching", True, "on"),
        ("prefix_caching", False, "off"),
        ("request_kv_dtypes", [], "none"),
        ("request_kv_dtypes", ["int4", "fp8"], "int4, fp8"),
        ("weight", 2.0, "2"),
        ("kv_dtype", "fp8", "fp8"),
    ],
)
def test_values_are_shown_as_people_read_them(field: str, value: Any, text: str) -> None:
    assert shown(field, value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1 s"), (59, "59 s"), (60, "1 min"), (90, "90 s"), (3600, "1 h"), (86_400, "1 d"), (604_800, "7 d")],
)
def test_durations_are_in_the_largest_unit_that_fits_whole(seconds: int, text: str) -> None:
    assert duration(seconds) == text
