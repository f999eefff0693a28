from datetime import UTC, datetime
from typing import Any

from django.template.loader import render_to_string

from controlplane.dashboard.audit.rows import MOST_CHANGES, MOST_WORDS, TrailChange, changes_of, trail_row


def seen(**more: Any) -> dict[str, Any]:
    """A record as tenants.audit.record_seen says it."""
    return {
        "seq": 7,
        "at": datetime(2026, 11, 24, 12, tzinfo=UTC),
        "actor": {"kind": "member", "id": "1", "name": "kim@acme.example"},
        "verb": "policy.publish",
        "target": "acme/chat",
        "before": None,
        "after": None,
        "address": None,
        "request_id": None,
        "hash": "ab",
        **more,
    }


def test_what_stayed_goes_unsaid_and_what_changed_says_both() -> None:
    before = {"revision": 1, "policy": {"ttl_seconds": 300, "kv_dtype": "fp8"}}
    after = {"revision": 2, "policy": {"ttl_seconds": 60, "kv_dtype": "fp8"}}
    assert list(changes_of(before, after)) == [
        TrailChange("TTL", "5 min", "1 min"),
        TrailChange("revision", "1", "2"),
    ]


def test_absent_and_null_are_two_things_in_what_was_there_before() -> None:
    assert list(changes_of({"policy": {}}, {"policy": {"max_age_seconds": None}})) == [
        TrailChange("Maximum age", None, "no cap")
    ]
    assert list(changes_of({"a": 1}, {})) == [TrailChange("a", "1", None)]


def test_of_a_new_thing_what_is_empty_goes_unsaid() -> None:
    after: dict[str, Any] = {"name": "", "slug": "chat", "expires_at": None, "namespaces": [], "is_on": False}
    assert [one.field for one in changes_of(None, after)] == ["is_on", "slug"]


def test_lists_of_plain_values_are_one_value_and_lists_of_things_are_told_apart() -> None:
    assert list(changes_of({"allowed": ["fp8"]}, {"allowed": ["fp8", "int4"]})) == [
        TrailChange("allowed", "fp8", "fp8, int4")
    ]
    assert list(changes_of([{"model": "m", "input": "1"}], [{"model": "m", "input": "2"}])) == [
        TrailChange("1.input", "1", "2")
    ]
    assert list(changes_of({"allowed": ["fp8"]}, {"allowed": []})) == [TrailChange("allowed", "fp8", "nothing")]


def test_a_value_that_is_no_object_is_told_too() -> None:
    assert list(changes_of(1, 2)) == [TrailChange("value", "1", "2")]
    assert list(changes_of(None, None)) == []


def test_long_values_and_many_changes_are_cut_and_counted() -> None:
    (long,) = changes_of({"note": "a"}, {"note": "x" * 500})
    assert len(long.after or "") == MOST_WORDS
    row = trail_row(seen(after={f"field{number:02}": number for number in range(MOST_CHANGES + 3)}))
    assert (len(row.changes), row.unshown) == (MOST_CHANGES, 3)


def test_a_deed_that_nobody_has_named_still_reads() -> None:
    assert trail_row(seen()).deed == "Policy published"
    assert trail_row(seen(verb="rollout.roll-back")).deed == "Rollout roll back"


def test_what_is_not_the_readers_is_empty() -> None:
    told = {"seq": 7, "address": "10.0.0.9", "request_id": "r-1"}
    whole, part = (
        render_to_string("dashboard/audit/_trail.html", {"rows": [trail_row(seen(**more))]})
        for more in (told, dict.fromkeys(told))
    )
    for words in ("record 7", "10.0.0.9", "r-1"):
        assert words in whole
        assert words not in part
    assert "None" not in part
