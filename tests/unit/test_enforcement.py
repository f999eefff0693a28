"""Grades of enforcement: how engines declare them, what several agents come to, and what a draft is refused for."""

from typing import Any

import pytest

from controlplane.dashboard.policies.enforcement_words import enforcement_facts, fleet_words, policy_words
from controlplane.doctor import fleet
from controlplane.fleet.about import about_read
from controlplane.fleet.enforcement import (
    NOT_REPORTED,
    Serving,
    ability_of,
    enforcement_view,
    together,
)
from controlplane.fleet.in_force import InForce, not_enforced
from controlplane.rollouts.checks import Judgement
from controlplane.rollouts.enforcing import Setting, concerned, graded, judge, settings_of
from engine_agent.backends.paged.declarations import paged_enforcement
from engine_agent.backends.vllm.declarations import vllm_enforcement
from engine_agent.contracts.enforcement import (
    ENFORCED,
    Enforcement,
    Graded,
    IncompleteDeclaration,
    declared,
    enforcement_decode,
    enforcement_encode,
)
from tenants.actor import Actor, ActorKind
from tenants.drafts import Draft
from tenants.errors import UnenforcedField
from tests.database.factories import about_agent

WITH_POOL = paged_enforcement(host_pool_bytes=1, host_formats=["fp8", "bf16"], kv_formats=["fp8", "bf16"])
WITHOUT_POOL = paged_enforcement(host_pool_bytes=0, host_formats=[], kv_formats=["fp8", "bf16"])
OPERATOR = Actor(ActorKind.OPERATOR, "1", "kim@luminet.example", frozenset())
CUSTOMER = Actor(ActorKind.KEY, "2", "key", frozenset(), organisation_id=7)
NOTHING: dict[str, Any] = {}


def serving(
    name: str = "agent-1", enforcement: Enforcement = WITHOUT_POOL, *, model: str = "m", **about: Any
) -> Serving:
    models = [{"name": model, "revision": "r", "kv_dtypes": ["fp8"], "context_tokens": 1}]
    told = about_agent(models=models, enforcement=enforcement_encode(enforcement), **about)
    return Serving(name, 1, False, ability_of(about_read(told)))


def older(name: str = "agent-old") -> Serving:
    """Of a version that does not report what it enforces."""
    told = about_agent()
    del told["enforcement"]
    return Serving(name, 1, False, ability_of(about_read(told)))


def judged(
    *agents: Serving, before: dict[str, Any] = NOTHING, actor: Actor = OPERATOR, above: Any = ({},), **after: Any
) -> Judgement:
    draft = Draft(tuple(above), before, after)
    return judge(draft, settings_of(draft), agents, actor=actor)


def problems(*agents: Serving, **more: Any) -> dict[str, str]:
    return {one.field: one.message for one in judged(*agents, **more).problems}


def warnings(*agents: Serving, **more: Any) -> list[str]:
    return [one.message for one in judged(*agents, **more).warnings]


# Declarations


def test_declaration_survives_the_wire() -> None:
    assert enforcement_decode(enforcement_encode(WITH_POOL)) == WITH_POOL


@pytest.mark.parametrize("change", [{"offload": {"none": ENFORCED}}, {"colour": ENFORCED}, {"offload": ENFORCED}])
def test_incomplete_declaration_is_an_error(change: Any) -> None:
    with pytest.raises(IncompleteDeclaration):
        declared({**WITH_POOL, **change})


def test_missing_field_is_an_error() -> None:
    with pytest.raises(IncompleteDeclaration, match="weight"):
        declared({name: graded for name, graded in WITH_POOL.items() if name != "weight"})


@pytest.mark.parametrize("told", [None, [], "enforced", {"weight": "enforced"}, {"weight": {"grade": "always"}}])
def test_unreadable_declaration_is_untested(told: Any) -> None:
    ability = ability_of(about_read(about_agent(enforcement=told)))
    assert ability.grade("weight", 1.0) == NOT_REPORTED


def test_newer_declaration_keeps_what_is_known() -> None:
    told = {**enforcement_encode(WITHOUT_POOL), "colour": {"grade": "enforced", "why": ""}}
    told["offload"]["values"]["tape"] = {"grade": "enforced", "why": ""}
    assert about_read(about_agent(enforcement=told))["enforcement"] == enforcement_encode(WITHOUT_POOL)


@pytest.mark.parametrize(
    ("pool", "formats", "grade"),
    [(0, [], "refused"), (1, [], "refused"), (1, ["fp8"], "best_effort"), (1, ["fp8", "bf16"], "enforced")],
)
def test_host_grade_follows_the_host_pool(pool: int, formats: list[str], grade: str) -> None:
    found = paged_enforcement(host_pool_bytes=pool, host_formats=formats, kv_formats=["fp8", "bf16"])["offload"]
    assert found["host"].grade == grade  # type: ignore[index]


def test_vllm_on_a_gpu_claims_nothing() -> None:
    grades = {
        graded.grade
        for one in vllm_enforcement(is_gpu=True).values()
        for graded in (one.values() if not isinstance(one, Graded) else [one])
    }
    assert grades == {"untested", "refused"}


# One agent, several agents


@pytest.mark.parametrize(
    ("grades", "grade"),
    [
        ([], "untested"),
        (["enforced", "enforced"], "enforced"),
        (["refused", "refused"], "refused"),
        (["enforced", "refused"], "best_effort"),
        (["untested", "refused"], "untested"),
        (["enforced", "untested"], "untested"),
        (["enforced", "best_effort"], "best_effort"),
    ],
)
def test_several_agents_are_as_good_as_the_weakest(grades: list[Any], grade: str) -> None:
    found = together("offload", {f"agent-{number}": Graded(one) for number, one in enumerate(grades)})
    assert (found.grade, found.enforcing, found.refusing) == (grade, grades.count("enforced"), grades.count("refused"))


def test_format_needs_one_agent_that_can() -> None:
    """Gateways send the request there."""
    found = together("kv_dtype", {"agent-1": ENFORCED, "agent-2": Graded("refused", "it cannot do int8")})
    assert (found.grade, found.refusing) == ("enforced", 0)


def test_format_grade_follows_the_reported_formats() -> None:
    ability = ability_of(about_agent(kv_dtypes=["fp8_e4m3", "fp8"], models=[], computed_as={"fp8": "fp8_e4m3"}))
    assert ability.grade("kv_dtype", "fp8").grade == "untested"
    model = {"name": "m", "revision": "r", "kv_dtypes": ["fp8_e4m3", "fp8"], "context_tokens": 1}
    ability = ability_of(about_agent(models=[model], computed_as={"fp8": "fp8_e4m3"}))
    grades = {one: ability.grade("kv_dtype", one).grade for one in ("fp8_e4m3", "fp8", "int8")}
    assert grades == {"fp8_e4m3": "enforced", "fp8": "best_effort", "int8": "refused"}


def test_agent_view_has_every_field() -> None:
    shown = enforcement_view(about_agent(enforcement=enforcement_encode(WITHOUT_POOL)))
    assert shown["ttl_seconds"] == {"grade": "enforced", "why": "", "values": {}}
    assert {value: one["grade"] for value, one in shown["offload"]["values"].items()} == {
        "none": "enforced",
        "host": "refused",
        "disk": "refused",
    }
    assert {one["grade"] for one in enforcement_view({"models": []}).values()} == {"untested"}


# Drafts


def test_value_that_all_agents_refuse_is_refused() -> None:
    told = problems(serving("agent-1"), serving("agent-2", WITH_POOL), offload="disk")
    assert told == {
        "policy.offload": "'disk' is not enforced: none of the 2 agents that serve this enforces it "
        "(agent-1, agent-2: no disk tier). Use one of: none, host"
    }
    (problem,) = judged(serving(), offload="disk").problems
    assert isinstance(problem, UnenforcedField)


def test_host_without_any_host_pool_is_refused() -> None:
    (told,) = problems(serving(), offload="host").values()
    assert "agent-1: no host pool" in told
    assert "Use one of: none" in told


def test_members_read_of_no_agent() -> None:
    (told,) = problems(serving(), serving("agent-2"), actor=CUSTOMER, offload="disk").values()
    assert "none of the 2 agents" in told
    assert "agent-1" not in told
    (told,) = warnings(serving(), serving("agent-2", WITH_POOL), actor=CUSTOMER, offload="host")
    assert told.startswith("1 of 2 agents enforces offload host; no host pool")
    assert "agent-1" not in told


def test_kept_value_is_not_judged() -> None:
    assert problems(serving(), before={"offload": "disk"}, offload="disk", ttl_seconds=7) == {}
    assert problems(serving(), before={"offload": "disk"}, offload="host") != {}


def test_inherited_value_is_not_judged() -> None:
    assert problems(serving(), above=({"offload": "disk"},), before={"offload": "none"}, ttl_seconds=7) == {}


def test_value_of_a_model_is_judged_on_its_agents() -> None:
    agents = serving("agent-1", WITH_POOL, model="a"), serving("agent-2", model="b")
    assert problems(*agents, models={"a": {"offload": "host"}}) == {}
    assert [*problems(*agents, models={"b": {"offload": "host"}})] == ["policy.models.b.offload"]
    kept = {"models": {"b": {"offload": "host"}}}
    assert problems(*agents, before=kept, models={"b": {"offload": "host", "weight": 2.0}}) == {}


def test_general_value_spares_models_with_their_own() -> None:
    agents = serving("agent-1", WITH_POOL, model="a"), serving("agent-2", model="b")
    assert problems(*agents, offload="host", models={"a": {"offload": "none"}}).keys() == {"policy.offload"}
    chain = [{"offload": "host", "models": {"b": {"offload": "none"}}}]
    assert [one.agent for one in concerned(chain, Setting("offload", None, "host"), agents)] == ["agent-1"]


def test_older_agent_refuses_nothing_and_proves_nothing() -> None:
    assert judged(older(), ttl_seconds=7, weight=2.0) == Judgement()
    assert problems(older(), serving(), offload="disk") == {}
    (told,) = warnings(older(), serving(), offload="disk")
    assert "0 of 2 agents enforce offload disk; agent-old: it does not report what it enforces" in told


def test_without_agents_nothing_is_refused() -> None:
    assert judged(ttl_seconds=7) == Judgement()
    assert judged(offload="none") == Judgement()
    assert warnings(offload="disk") == ["No agent serves this yet: it is not known whether one enforces offload disk."]


def test_best_effort_is_a_warning() -> None:
    agents = serving("agent-1"), serving("agent-2", vllm_enforcement(is_gpu=False))
    (told,) = warnings(*agents, weight=2.0)
    assert told.startswith("1 of 2 agents enforces weight 2.0; agent-2: weights count for admission")


# Words


def agent(name: str, *unenforced: str, group: str = "default") -> dict[str, Any]:
    told = [{"field": "offload", "value": one, "why": f"no {one}"} for one in unenforced]
    return {"id": name, "kind": "engine", "group": group, "models": ["m"], "not_enforced": told}


def test_agent_names_what_it_refuses_once() -> None:
    ability = serving().ability
    fields = [
        InForce("offload", "disk"),
        InForce("offload", "disk", "m"),
        InForce("offload", "none"),
        InForce("ttl_seconds"),
    ]
    assert not_enforced(ability, fields) == [{"field": "offload", "value": "disk", "why": "no disk tier"}]
    assert not_enforced(ability, [InForce("offload", "disk", "other"), InForce("offload", "disk", None, ("m",))]) == []


def test_fleet_statement_tells_nowhere_from_somewhere() -> None:
    assert fleet_words([agent("a"), agent("b")]) == ""
    assert fleet_words([agent("a", "disk"), agent("b", "disk")]) == "1 field is not enforced: Offload tier"
    assert fleet_words([agent("a", "disk"), agent("b")]) == "1 field is not enforced on every agent: Offload tier"
    gateway = {**agent("g"), "kind": "gateway"}
    assert fleet_words([agent("a", "disk"), gateway]) == "1 field is not enforced: Offload tier"


def test_agent_facts_name_all_but_enforced_fields() -> None:
    told = about_agent(enforcement=enforcement_encode(WITHOUT_POOL))
    facts = dict(enforcement_facts(enforcement_view(told)))
    assert facts.pop("Policy fields") == "10 of 11 enforced"
    assert facts == {
        "Offload tier": "host: not enforced, no host pool: start it with --host-pool; disk: not enforced, no disk tier"
    }
    del told["enforcement"]
    assert dict(enforcement_facts(enforcement_view(told))) == {
        "Policy fields": "it does not report which of them it enforces"
    }


def test_policy_statement_has_the_reason() -> None:
    found = {"offload": graded(Setting("offload", None, "disk"), [serving()])}
    assert policy_words([found], OPERATOR) == "1 field is not enforced: Offload tier (agent-1: no disk tier)"
    assert policy_words([found], CUSTOMER) == "1 field is not enforced: Offload tier (no disk tier)"
    assert policy_words([{"ttl_seconds": graded(Setting("ttl_seconds", None, 7), [older()])}], OPERATOR) == ""


def test_doctor_names_what_nobody_enforces() -> None:
    (told,) = fleet.enforcement_findings([agent("a", "disk", "host"), agent("b", "disk"), agent("c", group="gpu")])
    assert (told.status, told.says) == (
        "warning",
        "offload disk is published, and no agent of the group default enforces it: no disk",
    )
    assert [one.status for one in fleet.enforcement_findings([agent("a", "disk"), agent("b")])] == ["ok"]
    older_engine = {"id": "of before", "kind": "engine", "group": "default", "models": ["m"]}
    assert fleet.enforcement_findings([older_engine]) == []
