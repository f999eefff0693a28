"""Formats that agents cannot do, or that have not passed: refused at publish, and let through on the record."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.fleet.models import QualityResult
from controlplane.fleet.quality_results import artefact_digest, quality_ensure
from tenants.actor import SYSTEM
from tenants.levels import FLEET, level_of
from tenants.models import AuditRecord
from tests.database.factories import make_agent, publish
from tests.fleet.rollouts import SHIPPED, make_shipped_results, shipped_quality
from tests.web.api import Api, make_organisation, said

pytestmark = pytest.mark.django_db
PATH = "/orgs/acme/policy"
REVISION = shipped_quality()["model_revision"]
EVERY = ["bf16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "k8v4", "int4", "nvfp4"]
OVERRIDE = {"model": "luminet-demo", "revision": REVISION, "backend": "torch-cpu", "note": "Judged by us, ticket 4712"}


def demo_engine(name: str = "agent-1", formats: list[str] = EVERY, **about: Any) -> None:
    model = {"name": "luminet-demo", "revision": REVISION, "kv_dtypes": formats, "context_tokens": 2048}
    make_agent(name, **({"backend": "paged", "models": [model], "kv_dtypes": formats} | about))


def refused(api: Api, *, status: int = 400, **policy: Any) -> dict[str, str]:
    """By field, with what a publish is refused; its preview had told."""
    seen = said(api.get(PATH))["revision"]
    preview = said(api.post(f"{PATH}/preview", {"policy": policy}))
    answer = api.put(PATH, {"policy": policy}, seen=seen)
    if answer.status_code == 200:
        assert preview["problems"] == []
        return {}
    told = said(answer)
    kind = {400: "problem-refused", 422: "problem-invalid"}[status]
    assert (answer.status_code, told["type"].rpartition("/")[2].rpartition("#")[2]) == (status, kind)
    assert preview["problems"] == told["errors"]
    return {one["field"]: one["message"] for one in told["errors"]}


def test_what_was_shipped_lets_through_what_passed_and_nothing_else(acme: Api) -> None:
    demo_engine()
    make_shipped_results()
    for kv_dtype in ("bf16", "fp8", "int8", "k8v4", "int4", "nvfp4"):
        assert refused(acme, kv_dtype=kv_dtype) == {}
    for kv_dtype in ("fp8_e4m3", "fp8_e5m2"):
        assert refused(acme, kv_dtype=kv_dtype) == {
            "policy.kv_dtype": f"has no passing quality result: {kv_dtype} is unresolved on luminet-demo at "
            f"{REVISION[:12]} on torch-cpu; there is bf16, fp8, int8, k8v4, int4, nvfp4"
        }


def test_without_results_nothing_but_bf16_passes(acme: Api) -> None:
    demo_engine()
    assert "was not measured" in refused(acme, request_kv_dtypes=["int8"])["policy.request_kv_dtypes"]
    assert refused(acme, kv_dtype="bf16", request_kv_dtypes=[]) == {}


def test_a_format_that_no_agent_can_do_is_refused_naming_them(acme: Api, operator: Api) -> None:
    demo_engine("agent-1", ["bf16", "fp8"])
    demo_engine("agent-2", ["bf16"])
    make_shipped_results()
    assert refused(operator, status=422, kv_dtype="nvfp4") == {
        "policy.kv_dtype": "no agent here can do nvfp4: agent-1 can do bf16, fp8; agent-2 can do bf16"
    }


def test_refused_members_read_no_agents_name(acme: Api) -> None:
    demo_engine("agent-1", ["bf16", "fp8"])
    make_shipped_results()
    told = refused(acme, status=422, kv_dtype="nvfp4")["policy.kv_dtype"]
    assert told == "no agent here can do nvfp4: some agents can do bf16, fp8"


def test_what_passed_on_our_engine_is_unproven_on_vllm_and_one_preview_says_both(acme: Api) -> None:
    assert refused(acme, kv_dtype="bf16") == {}
    demo_engine("agent-2", ["fp8_e4m3", "fp8"], backend="vllm", computed_as={"fp8": "fp8_e4m3"})
    make_shipped_results()
    unproven = f"was not measured on luminet-demo at {REVISION[:12]} on vllm-cpu; there is nothing"
    told = f"fp8 (computed as fp8_e4m3) {unproven}"
    assert refused(acme, kv_dtype="fp8") == {"policy.kv_dtype": f"has no passing quality result: {told}"}
    demo_engine("agent-1")
    preview = said(acme.post(f"{PATH}/preview", {"policy": {"kv_dtype": "fp8"}}))
    assert [one["message"] for one in preview["warnings"] if one["code"] == "format_unproven"] == [
        f"{told}. Requests for it go to others, or get 400."
    ]
    assert refused(acme, kv_dtype="fp8") == {}


def test_a_format_that_some_cannot_do_is_shown_in_the_preview(acme: Api) -> None:
    demo_engine("agent-1")
    demo_engine("agent-2", ["bf16", "fp8"])
    make_shipped_results()
    preview = said(acme.post(f"{PATH}/preview", {"policy": {"request_kv_dtypes": ["int8"]}}))
    assert "format_lacking" in [one["code"] for one in preview["warnings"]]
    assert refused(acme, request_kv_dtypes=["int8"]) == {}


def test_without_agents_there_is_nobody_to_refuse_for(acme: Api) -> None:
    assert refused(acme, kv_dtype="nvfp4") == {}


def test_a_publish_of_something_else_asks_about_no_format(acme: Api) -> None:
    demo_engine()
    assert refused(acme, ttl_seconds=60) == {}


def test_a_configuration_is_refused_as_a_publish_is(operator: Api) -> None:
    make_organisation("acme")
    demo_engine()
    document = {"version": 1, "organisations": {"acme": {"policy": {"kv_dtype": "int8"}}}}
    answer = operator.post("/config/apply", {"document": document})
    assert answer.status_code == 400
    assert said(answer)["errors"][0]["field"].endswith("acme.policy.kv_dtype")


def test_an_override_lets_it_through_and_is_recorded(acme: Api, operator: Api) -> None:
    demo_engine()
    assert refused(acme, kv_dtype="fp8_e4m3")
    answer = operator.post("/quality/override", {**OVERRIDE, "kv_dtype": "fp8_e4m3"})
    assert (answer.status_code, said(answer)["verdict"], said(answer)["may_serve"]) == (201, "overridden", True)
    assert refused(acme, kv_dtype="fp8_e4m3") == {}
    record = AuditRecord.objects.get(verb="quality.override")
    assert record.actor_name.startswith("operator@luminet.example")
    assert "ticket 4712" in record.after
    assert acme.post("/quality/override", {**OVERRIDE, "kv_dtype": "int8"}).status_code == 403


def test_an_override_needs_a_reason(operator: Api) -> None:
    answer = operator.post("/quality/override", {**OVERRIDE, "kv_dtype": "int8", "note": ""})
    assert (answer.status_code, said(answer)["errors"][0]["field"]) == (422, "note")


def test_results_are_stored_over_rest_and_the_newest_counts(acme: Api, operator: Api) -> None:
    operator.post("/quality/override", {**OVERRIDE, "kv_dtype": "fp8_e4m3"})
    answer = operator.post("/quality", {"model": "luminet-demo", "artefact": shipped_quality()})
    assert answer.status_code == 201
    stored = {one["kv_dtype"]: one["verdict"] for one in said(answer)["results"]}
    assert stored == {one: "unresolved" if one in ("fp8_e4m3", "fp8_e5m2") else "passed" for one in EVERY}
    listed = said(acme.get("/quality?kv_dtype=fp8_e4m3"))["items"]
    assert [(one["verdict"], one["may_serve"], one["created_by"]) for one in listed] == [("unresolved", False, None)]
    assert listed[0]["figures"]["shortcomings"]
    assert len(said(operator.get("/quality"))["items"]) == len(EVERY)
    assert said(operator.get("/quality?model=other"))["items"] == []


def test_why_an_operator_let_a_format_through_is_for_operators(acme: Api, operator: Api) -> None:
    operator.post("/quality/override", {**OVERRIDE, "kv_dtype": "fp8_e4m3"})
    (ours,) = said(acme.get("/quality"))["items"]
    (theirs,) = said(operator.get("/quality"))["items"]
    assert (ours["note"], ours["created_by"]) == ("", None)
    assert (theirs["note"], ours["verdict"]) == (OVERRIDE["note"], "overridden")


@pytest.mark.parametrize("flaw", [{"is_quick": True}, {"is_control_rejected": False}], ids=["quick", "blind"])
def test_a_quick_or_blind_run_takes_nothing_back_that_was_decided(operator: Api, flaw: dict[str, bool]) -> None:
    operator.post("/quality/override", {**OVERRIDE, "kv_dtype": "fp8_e4m3"})
    flawed = {**shipped_quality(), **flaw}
    flawed["digest"] = artefact_digest(flawed)
    stored = said(operator.post("/quality", {"model": "luminet-demo", "artefact": flawed}))["results"]
    assert {one["verdict"] for one in stored} == {"unresolved"}
    counting = {one["kv_dtype"]: one["verdict"] for one in said(operator.get("/quality"))["items"]}
    assert counting == {one: "overridden" if one == "fp8_e4m3" else "unresolved" for one in EVERY}
    operator.post("/quality", {"model": "luminet-demo", "artefact": shipped_quality()})
    operator.post("/quality", {"model": "luminet-demo", "artefact": flawed})
    counting = {one["kv_dtype"]: one["verdict"] for one in said(operator.get("/quality"))["items"]}
    assert counting == {one: "unresolved" if one in ("fp8_e4m3", "fp8_e5m2") else "passed" for one in EVERY}


def test_with_calibrated_scales_other_verdicts_count(operator: Api) -> None:
    body = {"model": "luminet-demo", "artefact": shipped_quality(), "scales": "calibrated"}
    stored = {one["kv_dtype"]: one["verdict"] for one in said(operator.post("/quality", body))["results"]}
    assert (stored["fp8_e5m2"], stored["fp8_e4m3"], stored["bf16"]) == ("passed", "unresolved", "passed")


def test_a_changed_file_is_refused_and_stores_nothing(operator: Api) -> None:
    artefact = {**shipped_quality(), "is_quick": True}
    answer = operator.post("/quality", {"model": "luminet-demo", "artefact": artefact})
    assert (answer.status_code, said(answer)["errors"][0]["field"]) == (422, "artefact.digest")
    assert not QualityResult.objects.exists()


def test_who_starts_again_stores_the_shipped_results_once(operator: Api) -> None:
    assert quality_ensure(actor=SYSTEM, model="luminet-demo", path=SHIPPED)
    operator.post("/quality/override", {**OVERRIDE, "kv_dtype": "fp8_e4m3"})
    assert not quality_ensure(actor=SYSTEM, model="luminet-demo", path=SHIPPED)
    (newest,) = said(operator.get("/quality?kv_dtype=fp8_e4m3"))["items"]
    assert newest["verdict"] == "overridden"
    assert quality_ensure(actor=SYSTEM, model="another name", path=SHIPPED)


def test_a_policy_in_force_is_not_refused_when_a_result_goes_bad(acme: Api) -> None:
    demo_engine()
    make_shipped_results()
    assert refused(acme, kv_dtype="int8") == {}
    QualityResult.objects.update(verdict="failed")
    assert refused(acme, kv_dtype="int8", ttl_seconds=60) == {}
    assert refused(acme, kv_dtype="int4", ttl_seconds=60)


def test_the_fleets_own_default_is_judged_too(operator: Api) -> None:
    make_organisation("acme")
    demo_engine()
    answer = operator.put("/policy", {"policy": {"kv_dtype": "int8"}}, seen=0)
    assert answer.status_code == 400
    assert level_of(FLEET).revision == 0
    publish(FLEET, kv_dtype="int8")  # the system, which takes back what was in force, is not asked
    assert level_of(FLEET).revision == 1


def test_many_levels_at_once_ask_as_few_questions_as_two(operator: Api) -> None:
    make_organisation("acme", *(f"n{number}" for number in range(40)))
    demo_engine()
    make_shipped_results()
    assert publish_counted(operator, range(2)) == publish_counted(operator, range(2, 40))


def publish_counted(operator: Api, numbers: range) -> int:
    """Queries of what is asked about formats, when each of these namespaces chooses another one."""
    namespaces = {f"n{number}": {"policy": {"kv_dtype": "int8"}} for number in numbers}
    document = {"version": 1, "organisations": {"acme": {"namespaces": namespaces}}}
    with CaptureQueriesContext(connection) as queries:
        answer = operator.post("/config/apply", {"document": document})
    assert answer.status_code == 200, answer.content
    return sum("fleet_agent" in one["sql"] or "fleet_qualityresult" in one["sql"] for one in queries)
