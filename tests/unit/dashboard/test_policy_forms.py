"""A policy as typed text and back, and what is said of it: pure, so every kind of value is tried."""

from typing import Any

import pytest

from controlplane.dashboard.policies.curves import curve
from controlplane.dashboard.policies.fields import INHERITED, problem_words, read, typed_of, value_words
from controlplane.dashboard.policies.formats import bytes_exact, cost, delta_words, formats
from controlplane.dashboard.policies.forms import form_of, form_sent, pressed, rebased, typed_level
from controlplane.dashboard.policies.headlines import headline, own_words
from controlplane.dashboard.policies.previews import said_between
from controlplane.dashboard.policies.rollout_forms import RolloutForm, button_words, rollout_form
from controlplane.dashboard.policies.rows import band_words, share_words
from controlplane.fleet.quality import Served
from controlplane.rollouts.spec import Guards
from controlplane.rollouts.stepping import Candidate
from engine_agent.contracts.policy_fields import FIELDS
from tenants.policy import BUILT_IN
from tenants.policy import FIELDS as POLICY_FIELDS
from tenants.preview import AgentPool
from tests.support.case_names import case_name

EVERYTHING: dict[str, Any] = {
    "prefix_caching": False,
    "ttl_seconds": 61,
    "ttl_mode": "absolute",
    "max_age_seconds": None,
    "kv_dtype": "k8v4",
    "request_kv_dtypes": ["nvfp4", "bf16"],
    "reserved_share": 0.07,
    "limit_share": 1.0,
    "weight": 0.333333333,
    "pin_share": 0.0,
    "offload": "disk",
    "models": {"qwen/qwen3-8b@1.0": {"max_age_seconds": 90, "request_kv_dtypes": []}, "b": {}},
}
POOL = AgentPool("agent-1", "m", 1 << 28, 16, {"bf16": 4096, "fp8": 2048})


def test_the_form_has_every_field_that_a_policy_has() -> None:
    assert tuple(FIELDS) == POLICY_FIELDS


def test_what_nobody_edits_comes_back_as_it_was() -> None:
    found = form_sent(typed_level(EVERYTHING, ()), EVERYTHING)
    assert (found.said, found.problems) == (EVERYTHING, {})
    assert list(found.said["request_kv_dtypes"]) == ["nvfp4", "bf16"]  # also in its order
    assert form_sent(typed_level({}, ()), {}).said == {}


def test_what_a_form_does_not_have_stays_as_it_was() -> None:
    found = form_sent({"ttl_seconds": ["2"], "ttl_seconds-unit": ["h"]}, EVERYTHING)
    assert found.said == {**EVERYTHING, "ttl_seconds": 7200}


def test_each_value_is_typed_as_it_is_read(subtests: pytest.Subtests) -> None:
    for name in list(FIELDS):
        with subtests.test(msg=name):
            for value in (BUILT_IN[name], EVERYTHING[name], INHERITED):
                assert FIELDS[name].is_same(read(FIELDS[name], name, typed_of(FIELDS[name], name, value)), value)


def test_values_read_in_the_units_people_think_in(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, Any, str]] = [
        ("ttl_seconds", 5400, "1 h 30 min"),
        ("max_age_seconds", None, "no cap"),
        ("reserved_share", 0.07, "7 % of each pool"),
        ("request_kv_dtypes", [], "nothing else"),
        ("prefix_caching", False, "off"),
        ("offload", "host", "host"),
        ("weight", 2.0, "2"),
        ("weight", INHERITED, "inherited"),
    ]
    for name, value, said in cases:
        with subtests.test(msg=case_name(name, value)):
            assert value_words(name, value) == said


@pytest.mark.parametrize(
    ("name", "message", "said"),
    [
        (
            "ttl_seconds",
            "604801 is more than 86400, the most you may choose",
            "7 d 1 s is more than 24 h, the most you may choose.",
        ),
        (
            "reserved_share",
            "0.5 is more than limit_share, which is 0.3",
            "50 % is more than “Share limit”, which is 30 %.",
        ),
        (
            "reserved_share",
            "would be 95.0% of each pool: acme/m0.5 95.0%",
            "would be 95.0% of each pool: acme/m0.5 95.0%.",
        ),
        (
            "kv_dtype",
            "no agent here can do int8: agent-1 can do bf16",
            "no agent here can do int8: agent-1 can do bf16.",
        ),
        ("weight", "3 is more than 2, the most you may choose", "3 is more than 2, the most you may choose."),
    ],
)
def test_what_services_say_reads_in_the_words_of_the_page(name: str, message: str, said: str) -> None:
    assert problem_words(name, message) == said


def test_what_was_left_alone_follows_what_was_published_meanwhile() -> None:
    old, new = {"ttl_seconds": 60, "weight": 2.0}, {"ttl_seconds": 90, "kv_dtype": "int4"}
    typed = {**form_of(old, ()).typed, "limit_share": ["50"], "pin_share": ["x"]}
    found = rebased(form_sent(typed, old), old, new, ())
    assert found.said == {"ttl_seconds": 90, "kv_dtype": "int4", "limit_share": 0.5}
    assert found.typed["pin_share"] == ["x"]


def test_what_both_changed_is_as_it_was_typed() -> None:
    old, new = {"ttl_seconds": 60}, {"ttl_seconds": 90}
    typed = {**form_of(old, ()).typed, "ttl_seconds": ["7"], "ttl_seconds-unit": ["s"]}
    assert rebased(form_sent(typed, old), old, new, ()).said == {"ttl_seconds": 7}
    typed = {**form_of(old, ()).typed, "ttl_seconds": [""]}
    assert rebased(form_sent(typed, old), old, new, ()).said == {}


def test_formats_that_were_all_unticked_stay_so_beside_what_was_published() -> None:
    old, new = {"request_kv_dtypes": ["int8"]}, {"request_kv_dtypes": ["int4"], "weight": 2.0}
    typed = {**form_of(old, ()).typed, "request_kv_dtypes": []}
    assert rebased(form_sent(typed, old), old, new, ()).said == {"request_kv_dtypes": [], "weight": 2.0}


def test_a_model_that_was_removed_stays_removed() -> None:
    old = {"models": {"a": {"weight": 2.0}, "b": {"weight": 2.0}}}
    new = {"models": {"a": {"weight": 2.0}, "b": {"weight": 2.0}, "c": {"weight": 3.0}}}
    typed = pressed({**form_of(old, ()).typed, "drop": ["m0"]}, ())
    assert rebased(form_sent(typed, old), old, new, ()).said["models"] == {"b": {"weight": 2.0}, "c": {"weight": 3.0}}


@pytest.mark.parametrize("key", ["m99-x", "nonsense", "-", "m0-", "models", "ttl_seconds", "m0" * 500])
def test_buttons_that_are_none_change_nothing(key: str) -> None:
    typed = typed_level(EVERYTHING, ())
    for button in ("inherit", "drop", "add"):
        if (button, key) != ("inherit", "ttl_seconds"):
            assert form_sent(pressed({**typed, button: [key]}, ()), EVERYTHING).said == EVERYTHING


def test_more_models_than_there_may_be_are_told() -> None:
    typed: dict[str, list[str]] = {"models": ["shown"]}
    for number in range(51):
        typed |= {f"m{number}": [f"model-{number}"], f"m{number}-has": ["weight"], f"m{number}-weight": ["2"]}
    assert form_sent(typed, {}).problems[""] == ["51 models have values of their own; 50 is the most."]


def test_a_model_named_twice_is_told() -> None:
    typed = {"models": ["shown"]} | {
        f"m{n}{s}": [v] for n in (0, 1) for s, v in (("", "a"), ("-has", "weight"), ("-weight", "2"))
    }
    assert form_sent(typed, {}).problems == {"m1": ["a is named twice: say all of it in one place."]}


# What it comes to


def test_what_a_token_costs_is_each_agents_own() -> None:
    assert cost("fp8", [POOL]) == "128 B a token, half of bf16"
    other = AgentPool("agent-2", "n", 1 << 28, 16, {"bf16": 1 << 20, "fp8": 1 << 19})
    assert cost("fp8", [POOL, other]) == "128 B or 32 KiB a token, half of bf16"
    assert cost("int4", [POOL]) == ""
    assert bytes_exact(163_840) == "160 KiB"


def test_both_deltas_or_that_nobody_measured_them() -> None:
    assert delta_words({"byte_delta_percent": 0.0894, "byte_divergence": 9.7e-4}) == "perplexity +0.09 %, KL 9.7e-4"
    assert delta_words({}) == "not measured"


def test_shares_of_pools_of_different_sizes_are_told_apart() -> None:
    small = AgentPool("agent-2", "m", 1 << 20, 16, POOL.block_bytes)
    said = share_words("reserved_share", {**BUILT_IN, "reserved_share": 0.5}, [POOL, small])
    assert said == "50 % = 128.0 MiB = 1,048,576 tokens on agent-1; 512.0 KiB = 4,096 tokens on agent-2, in fp8."
    assert "No agent here can do int8" in share_words("limit_share", {**BUILT_IN, "kv_dtype": "int8"}, [POOL])


def test_members_read_how_many_agents_lack_a_format() -> None:
    served = [Served("agent-1", "m", "r", "paged", ("bf16", "fp8")), Served("agent-2", "m", "r", "paged", ("bf16",))]
    ours, theirs = (formats([POOL], served, [], names_agents=one)["fp8"].caveat for one in (True, False))
    assert ours == "agent-2 cannot do it: requests for it go to the others"
    assert theirs == "1 agent cannot do it: requests for it go to the others"


def test_members_read_a_share_as_a_band() -> None:
    small = AgentPool("agent-2", "m", 1 << 20, 16, POOL.block_bytes)
    values = {**BUILT_IN, "reserved_share": 0.5}
    said = band_words("reserved_share", values, [POOL, small])
    assert said == "50 % = 512.0 KiB to 256.0 MiB on each agent, in fp8."
    assert "No agent here can do int8" in band_words("limit_share", {**BUILT_IN, "kv_dtype": "int8"}, [POOL])
    assert "known once an agent serves" in band_words("limit_share", values, [])


def test_the_headline_says_what_is_in_force() -> None:
    values = {**BUILT_IN, "ttl_seconds": 720}
    assert headline(values, "namespace", "acme/chat") == "chat keeps blocks for 12 min after their last use, as fp8"
    absolute = headline({**values, "ttl_mode": "absolute"}, "fleet", "fleet")
    assert absolute == "Where nobody says otherwise, blocks live 12 min from when they were made, as fp8"
    assert headline({**values, "prefix_caching": False}, "namespace", "acme/chat") == "chat caches nothing"
    assert own_words({}, "fleet") == f"All {len(FIELDS)} values are built in"


def test_a_difference_of_what_is_said_names_the_model() -> None:
    (line,) = said_between({}, {"models": {"m": {"ttl_seconds": 60}}})
    assert (line.what, line.before, line.after) == ("TTL of m", "inherited", "1 min")


# How it comes to the agents


def agents(engines: int, gateways: int = 1) -> list[Candidate]:
    named = [Candidate(f"agent-{number}", "engine", {}) for number in range(engines)]
    return [*named, *(Candidate(f"gateway-{number}", "gateway", {}) for number in range(gateways))]


@pytest.mark.parametrize(
    ("typed", "candidates", "said"),
    [
        ({}, agents(3), "Publish revision 7 to 4 agents at once"),
        ({}, agents(1, 0), "Publish revision 7 to 1 agent"),
        ({}, [], "Publish revision 7"),
        ({"strategy": ["canary"]}, agents(4), "Publish revision 7 to 1 of 4 engines first"),
        ({"strategy": ["canary"], "steps": ["50 → 100 %"]}, agents(4), "Publish revision 7 to 2 of 4 engines first"),
        ({"strategy": ["canary"], "steps": ["100"]}, agents(4), "Publish revision 7 to 5 agents at once"),
        ({"strategy": ["canary"], "steps": ["nonsense"]}, agents(4), "Publish revision 7"),
    ],
)
def test_the_button_says_what_will_happen(typed: dict[str, list[str]], candidates: list[Candidate], said: str) -> None:
    assert button_words(7, rollout_form(typed).spec, candidates) == said


@pytest.mark.parametrize("bake", ["0", "-1", "x", "9" * 400, "1.5"])
def test_a_bake_that_is_none_is_told(bake: str) -> None:
    found = rollout_form({"strategy": ["canary"], "bake": [bake], "bake-unit": ["d"]})
    assert found.spec is None
    assert "bakes" in found.non_field_errors()[0]
    assert found["bake"].value() == bake


def test_what_is_typed_of_steps_says_nothing_where_all_are_reached_at_once() -> None:
    found = rollout_form({"strategy": ["all"], "steps": ["nonsense"]})
    assert (found.errors, found["steps"].value()) == ({}, "nonsense")


# The curve


def foretold(ttl: int, ratio: float, **more: Any) -> dict[str, Any]:
    return {
        "ttl_seconds": ttl,
        "ttl_mode": "sliding",
        "limit_share": 1.0,
        "hit_ratio": ratio,
        "hit_ratio_error": 0.012,
        "resident_bytes": 1 << 20,
        "hit_tokens_per_day": 1000,
    } | more


def found(now: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    points = [
        {"ttl_seconds": at, "hit_ratio": ratio} for at, ratio in ((60, 0.1), (300, 0.6), (3600, 0.698), (86400, 0.70))
    ]
    return {
        "is_enough": True,
        "why": None,
        "agents": 2,
        "prompt_tokens": 20_000,
        "covered_seconds": 3_605,
        "measured_hit_ratio": 0.61,
        "now": now,
        "then": then,
        "curve": points,
    }


def test_the_curve_says_what_the_drafted_time_would_bring() -> None:
    now, then = foretold(300, 0.6), foretold(720, 0.65, resident_bytes=3 << 20, hit_tokens_per_day=1500)
    told = curve(found(now, then))
    assert told.title == "12 min would hit 65.0 %, 5.0 points more"
    assert told.chart is not None
    assert told.chart.xs == (60.0, 300.0, 720.0, 3600.0, 86400.0)
    assert [(mark.at, mark.label) for mark in told.chart.marks] == [(300, "now"), (720, "drafted")]
    assert "Blocks hold 1.0 MiB together on 2 engines; they would hold 3.0 MiB." in told.facts
    assert "500 more prompt tokens a day would be served from cache." in told.facts
    assert "it may be off by 1.2 points. Counted over the last 1 h: 61.0 %." in told.basis


def test_the_curve_names_the_shortest_time_that_brings_nearly_all() -> None:
    now = foretold(300, 0.6)
    assert curve(found(now, now)).title == "5 min hits 60.0 % of prompt tokens; 1 h would hit 9.8 points more"
    best = foretold(86400, 0.7)
    told = curve(found(best, best))
    assert told.title == "24 h hits 70.0 % of prompt tokens; no other time to live would hit a point more"


def test_of_too_little_nothing_is_foretold() -> None:
    told = curve({"is_enough": False, "why": "9 prompt tokens were seen"})
    assert (told.chart, told.basis) == (None, "9 prompt tokens were seen.")


def test_a_guard_left_empty_is_not_compared_and_one_left_out_has_its_default() -> None:
    found = rollout_form({"strategy": ["canary"], "guards": ["shown"], "guard-hit": [""], "guard-ttft": ["25"]}).spec
    assert found is not None
    assert found.guards == Guards(hit_ratio_drop=None, ttft_p95_rise=0.25, integrity=False)


def test_every_guard_of_the_api_can_be_typed() -> None:
    assert {*Guards.model_fields} <= {*RolloutForm.base_fields}
