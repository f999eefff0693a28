"""What pages say of a rollout, of what is stored of it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.dashboard.frame.words import lengths_in_words
from controlplane.dashboard.policies.fields import reason_words
from controlplane.dashboard.rollouts.facts import contents, deeds, seen_as
from controlplane.dashboard.rollouts.words import (
    figure,
    findings_words,
    headline,
    limit,
    state_tag,
    step_words,
    steps_of,
    what_next,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def seen(**more: Any) -> dict[str, Any]:
    told = {
        "place": "acme/chat",
        "revision": 7,
        "base_revision": 6,
        "strategy": "canary",
        "steps": [10, {"labels": {"tier": "canary"}}, 100],
        "step": 0,
        "state": "running",
        "bake_seconds": 60,
        "baking_since": None,
    }
    return {**told, **more}


def test_steps_say_whom_they_reach() -> None:
    said = [step_words(one) for one in steps_of(seen())]
    assert said == ["10 % of the engines", "engines with tier=canary", "everybody"]


@pytest.mark.parametrize(
    ("told", "counts", "said"),
    [
        ({}, (2, 0, 5), "acme/chat, revision 7 waits for 2 of 2 agents at step 1 of 3"),
        ({"step": 1}, (3, 3, 5), "acme/chat, revision 7 is on 3 of 5 agents, step 2 of 3"),
        ({"state": "paused"}, (2, 2, 5), "acme/chat, revision 7 is paused at step 1 of 3, on 2 of 5 agents"),
        ({"state": "done", "step": 2}, (5, 5, 5), "acme/chat, revision 7 is on all 5 agents"),
        ({"state": "done", "step": 2}, (1, 1, 1), "acme/chat, revision 7 is on 1 agent"),
        ({"state": "rolled_back"}, (2, 2, 5), "acme/chat, revision 7 was taken back at step 1 of 3"),
        (
            {"place": "fleet", "state": "aborted"},
            (2, 2, 5),
            "The fleet’s default, revision 7 was aborted at step 1 of 3",
        ),
    ],
)
def test_the_headline_states_the_fact(told: dict[str, Any], counts: tuple[int, int, int], said: str) -> None:
    reached, acknowledged, total = counts
    assert headline(seen(**told), reached=reached, acknowledged=acknowledged, total=total) == said


def test_what_comes_next_is_said_in_a_sentence(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "When all of this step have acknowledged it, they are watched for 1 min, then it goes to engines with"),
        ({"baking_since": NOW - timedelta(seconds=15)}, "In 45 s it goes to engines with tier=canary"),
        ({"baking_since": NOW - timedelta(seconds=90)}, "Its bake is over."),
        ({"step": 2}, "It is done when 1 more agent has acknowledged it."),
        ({"state": "paused"}, "Nothing happens until somebody resumes, promotes or aborts it."),
        ({"state": "rolled_back"}, "Nothing more: what revision 6 said was published again"),
        ({"state": "superseded"}, "Nothing more: a newer revision took over from it."),
        ({"state": "done"}, "Nothing more: it is over."),
    ]
    for told, begins in cases:
        with subtests.test(msg=f"{told!r}, {begins!r}"):
            assert what_next(seen(**told), reached=3, acknowledged=2, now=NOW).startswith(begins)


def test_a_bake_is_never_said_to_be_longer_than_it_is() -> None:
    assert state_tag(seen(baking_since=NOW - timedelta(hours=1)), NOW).word == "baking, 60 of 60 s"
    assert state_tag(seen(baking_since=NOW + timedelta(seconds=1)), NOW).word == "baking, 0 of 60 s"
    assert state_tag(seen(baking_since=NOW, state="paused"), NOW).word == "paused"


def test_a_long_bake_is_told_in_the_units_people_think_in() -> None:
    told = seen(baking_since=NOW - timedelta(seconds=245), bake_seconds=3600)
    assert state_tag(told, NOW).word == "baking, 4 min of 1 h"
    assert lengths_in_words("Step 1 of 2 bakes for 3600 s.") == "Step 1 of 2 bakes for 1 h."
    assert lengths_in_words("Step 1 of 2 bakes for 60 s.") == "Step 1 of 2 bakes for 60 s."


def test_a_first_revision_is_told_against_what_was_inherited() -> None:
    first = seen(revision=1, base_revision=0)
    assert contents(first, {}, {"ttl_seconds": 420})[0] == "Revision 1 sets 1 value that was inherited"
    assert contents(seen(), {"ttl_seconds": 300}, {"ttl_seconds": 420})[0].endswith("against revision 6")
    (abort,) = [one for one in deeds(first, total=2) if one.confirm]
    assert abort.consequence.startswith("It publishes what was inherited before as the next revision")


def test_numbers_of_guards_have_their_unit_and_sign() -> None:
    assert (figure("ttft_p95_rise", 0.2124), limit("ttft_p95_rise", 0.5)) == ("212 ms", "+ 50 %")
    assert (figure("hit_ratio_drop", 0.702), limit("hit_ratio_drop", 0.05)) == ("70.2 %", "− 5 points")
    assert (figure("error_ratio", None), limit("error_ratio", 0.02)) == ("–", "+ 2 points")


def test_a_bake_that_is_over_is_told_by_its_verdicts() -> None:
    verdicts = [{"verdict": "kept"}, {"verdict": "kept"}, {"verdict": "too little"}]
    assert findings_words(verdicts) == "2 guards kept, 1 guard too little"
    assert findings_words([]) == "no guard was set"


def names(**more: Any) -> list[str]:
    return [one.name for one in deeds(seen(**more), total=5)]


def test_only_what_makes_sense_may_be_done() -> None:
    assert names() == ["pause", "promote", "abort"]
    assert names(state="paused") == ["resume", "promote", "abort"]
    assert names(step=2) == ["pause", "abort"], "there is no step to promote to"
    assert names(state="done") == []


def test_what_is_dangerous_wants_the_places_name_and_says_how_many_it_concerns() -> None:
    (abort,) = [one for one in deeds(seen(), total=5) if one.confirm]
    assert abort.confirm == "acme/chat"
    assert "what revision 6 said as the next revision, for all 5 agents at once" in abort.consequence


def test_another_step_or_state_is_seen_otherwise() -> None:
    assert len({seen_as(seen()), seen_as(seen(step=1)), seen_as(seen(state="paused"))}) == 3


def test_what_a_revision_says_is_told_in_the_names_and_units_of_the_editor() -> None:
    before = {"ttl_seconds": 300, "reserved_share": 0.1}
    after = {"ttl_seconds": 5, "reserved_share": 0.1, "models": {"tiny": {"kv_dtype": "int8"}}}
    title, changes = contents(seen(), before, after)
    assert title == "Revision 7 changes 2 values against revision 6"
    assert [(one.what, one.before, one.after) for one in changes] == [
        ("TTL", "5 min", "5 s"),
        ("KV format of tiny", "inherited", "int8"),
    ]


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (
            "Breached. It cannot go back: policy.kv_dtype: no agent here can do nvfp4",
            "Breached. It cannot go back: “KV format”: no agent here can do nvfp4",
        ),
        (
            "policy.models.org/tiny-1.5.request_kv_dtypes: has no passing quality result",
            "“KV formats requests may choose” of org/tiny-1.5: has no passing quality result",
        ),
        ("ttl_seconds is out; bakes for 3600 s", "“TTL” is out; bakes for 1 h"),
        ("Waiting for agent-1 (its.policy.kv_dtype is none of ours).",) * 2,
    ],
)
def test_reasons_name_fields_as_the_editor_does(said: str, read: str) -> None:
    assert reason_words(said) == read
