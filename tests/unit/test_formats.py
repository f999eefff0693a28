"""Formats on agents: what a policy may name, what gateways refuse, what a run of the suite lets through."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from controlplane.fleet.quality import Results, Served, backend_of, refused_formats, served_by
from controlplane.fleet.quality_results import Artefact, artefact_load, artefact_read
from controlplane.rollouts.checks import Judgement, formats_differ, formats_judge
from tenants.drafts import Draft
from tenants.errors import InvalidFields
from tenants.policy import Below
from tests.fleet.rollouts import SHIPPED, shipped_quality

KEY = ("m", "r1", "torch-cpu")
ALL = ("bf16", "fp8", "int8", "int4")


def engine(agent: str = "agent-1", *formats: str, model: str = "m", revision: str = "r1") -> Served:
    return Served(agent, model, revision, "torch-cpu", formats or ALL)


def results(key: tuple[str, str, str] = KEY, **verdicts: str) -> Results:
    return Results({key: verdicts})


PASSED = results(fp8="passed", int4="passed")


def judged(
    after: Mapping[str, Any],
    *served: Served,
    known: Results = PASSED,
    before: Mapping[str, Any] | None = None,
    namespaces: Sequence[Mapping[str, Any]] = ({},),
) -> Judgement:
    """A change of the fleet's policy, with namespaces below it in the one group."""
    below = [Below(1, "acme", number, f"ns-{number}", 1, {}, said) for number, said in enumerate(namespaces)]
    return formats_judge(Draft((), before or {}, after), below, {1: served or [engine()]}, known)


def refusals(*args: Any, **more: Any) -> dict[str, str]:
    return {one.field: one.message for one in judged(*args, **more).problems}


def test_a_format_that_passed_is_no_problem() -> None:
    assert judged({"kv_dtype": "int4"}) == Judgement()
    assert judged({"kv_dtype": "bf16"}, known=Results()) == Judgement()


def test_a_format_no_agent_can_do_is_refused_naming_agents_and_formats() -> None:
    served = (engine("agent-1", "bf16", "fp8"), engine("agent-2", "bf16"))
    assert refusals({"kv_dtype": "nvfp4"}, *served) == {
        "policy.kv_dtype": "no agent here can do nvfp4: agent-1 can do bf16, fp8; agent-2 can do bf16"
    }


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (PASSED, "was not measured"),
        (results(int8="failed"), "is failed"),
        (results(int8="unresolved"), "is unresolved"),
    ],
)
def test_a_format_without_a_passing_result_is_refused_naming_result_and_alternatives(
    known: Results, words: str
) -> None:
    found = refusals({"request_kv_dtypes": ["int8"]}, known=known)
    open_ones = "bf16, fp8, int4" if known == PASSED else "bf16"
    result = f"int8 {words} on m at r1 on torch-cpu; there is {open_ones}"
    assert found == {"policy.request_kv_dtypes": f"has no passing quality result: {result}"}


def test_an_override_lets_it_through() -> None:
    assert judged({"kv_dtype": "int8"}, known=results(int8="overridden")) == Judgement()


def test_a_result_of_another_revision_or_backend_counts_for_nothing() -> None:
    for key in (("m", "r2", "torch-cpu"), ("m", "r1", "triton-cuda"), ("n", "r1", "torch-cpu")):
        assert "policy.kv_dtype" in refusals({"kv_dtype": "int8"}, known=results(key, int8="passed"))


def test_what_only_some_agents_can_do_is_told_and_not_refused() -> None:
    found = judged({"kv_dtype": "int4"}, engine("agent-1"), engine("agent-2", "bf16"))
    assert found.problems == ()
    (warning,) = found.warnings
    assert (warning.code, warning.field) == ("format_lacking", "kv_dtype")
    assert "agent-2 cannot do int4" in warning.message


def test_what_has_not_passed_on_some_model_is_told_and_not_refused() -> None:
    found = judged({"kv_dtype": "int4"}, engine(), engine("agent-2", model="n"))
    assert found.problems == ()
    assert [one.code for one in found.warnings] == ["format_unproven"]


def test_what_was_in_force_before_is_not_asked_about() -> None:
    assert judged({"kv_dtype": "int8", "ttl_seconds": 9}, before={"kv_dtype": "int8"}) == Judgement()
    assert not formats_differ(Draft((), {"kv_dtype": "int8", "ttl_seconds": 1}, {"kv_dtype": "int8"}))
    assert formats_differ(Draft((), {}, {"models": {"m": {"kv_dtype": "int8"}}}))


def test_a_namespace_that_says_otherwise_is_not_concerned() -> None:
    assert judged({"kv_dtype": "int8"}, namespaces=[{"kv_dtype": "fp8"}]) == Judgement()
    assert judged({"kv_dtype": "int8"}, namespaces=[{"kv_dtype": "fp8"}, {}]).problems


def test_a_models_own_format_is_asked_of_that_model_alone() -> None:
    after = {"models": {"n": {"kv_dtype": "int8"}}}
    assert judged(after) == Judgement()
    assert refusals(after, engine(), engine("agent-2", model="n")).keys() == {"policy.models.n.kv_dtype"}


def test_a_group_without_engines_refuses_nothing() -> None:
    below = [Below(1, "acme", 1, "chat", 2, {}, {})]
    assert formats_judge(Draft((), {}, {"kv_dtype": "nvfp4"}), below, {1: [engine()]}, PASSED) == Judgement()


# What gateways refuse


def test_gates_are_what_no_engine_may_and_some_could() -> None:
    gates = refused_formats([engine("agent-1", "bf16", "fp8", "int8")], results(fp8="passed", int8="unresolved"))
    assert gates == {"m": {"int8": "int8 is unresolved on m at r1 on torch-cpu; there is bf16, fp8"}}


def test_what_one_engine_may_has_no_gate() -> None:
    old, new = engine("agent-1"), engine("agent-2", revision="r2")
    known = Results({KEY: {"int8": "passed"}, ("m", "r2", "torch-cpu"): {"int4": "failed"}})
    assert "int8" not in refused_formats([old, new], known)["m"]
    assert known.allowed(new) == ("bf16",)


def test_our_engine_is_measured_on_a_cpu_and_a_gpu_apart() -> None:
    assert backend_of({"backend": "paged", "accelerator": None}) == "torch-cpu"
    assert backend_of({"backend": "paged", "accelerator": {"name": "H100"}}) == "triton-cuda"


def test_vllms_results_are_its_own_and_tell_a_cpu_from_a_gpu() -> None:
    assert backend_of({"backend": "vllm", "accelerator": None}) == "vllm-cpu"
    assert backend_of({"backend": "vllm", "accelerator": {"name": "H100"}}) == "vllm-cuda"
    assert backend_of({"backend": "simulated", "accelerator": None}) == "simulated"


def vllm_agent(*formats: str) -> Served:
    about = {
        "backend": "vllm",
        "kv_dtypes": [*formats],
        "computed_as": {"fp8": "fp8_e4m3"},
        "models": [{"name": "m", "revision": "r1", "kv_dtypes": [*formats]}],
    }
    (found,) = served_by("agent-2", about)
    return found


def test_a_format_measured_on_one_backend_is_not_proven_on_another() -> None:
    ours, theirs = engine("agent-1", "bf16", "fp8", "int8"), vllm_agent("fp8_e4m3", "fp8")
    known = results(fp8="passed", int8="passed", fp8_e4m3="passed")
    assert (known.allowed(ours), known.allowed(theirs)) == (("bf16", "fp8", "int8"), ())
    proven = results(theirs.key, fp8_e4m3="passed", int8="passed")
    assert (proven.allowed(ours), proven.allowed(theirs)) == (("bf16",), ("fp8_e4m3", "fp8"))


def test_a_fleet_of_both_keeps_a_format_that_one_of_them_may_serve() -> None:
    assert refused_formats([engine("agent-1", "bf16", "fp8"), vllm_agent("fp8_e4m3", "fp8")], PASSED) == {
        "m": {"fp8_e4m3": "fp8_e4m3 was not measured on m at r1 on vllm-cpu; there is nothing"}
    }


def test_the_reference_needs_no_result_on_any_backend() -> None:
    assert Results().allowed(vllm_agent("bf16")) == ("bf16",)
    assert Results().why_idle(vllm_agent("bf16")) == ""


def test_a_format_is_judged_by_what_is_computed_under_its_name_unless_that_was_judged_itself() -> None:
    theirs = vllm_agent("fp8_e4m3", "fp8")
    assert results(theirs.key, fp8="overridden").allowed(theirs) == ("fp8",)
    assert results(theirs.key, fp8_e4m3="passed", fp8="failed").allowed(theirs) == ("fp8_e4m3",)
    said = results(theirs.key, fp8_e4m3="unresolved").why_not(theirs, "fp8")
    assert said == "fp8 (computed as fp8_e4m3) is unresolved on m at r1 on vllm-cpu; there is nothing"


def test_an_engine_none_of_whose_formats_may_carry_traffic_says_why_it_gets_none() -> None:
    assert PASSED.why_idle(vllm_agent("fp8_e4m3", "fp8")) == (
        "it gets no requests: fp8_e4m3 was not measured on m at r1 on vllm-cpu; bf16 needs no result"
    )
    assert PASSED.why_idle(engine("agent-1", "bf16", "int8")) == ""


def test_every_model_of_an_agent_counts_with_its_own_formats() -> None:
    about = {
        "backend": "paged",
        "kv_dtypes": ["bf16", "fp8"],
        "models": [
            {"name": "m", "revision": "r1", "kv_dtypes": ["bf16"]},
            {"name": "n", "revision": "r2", "kv_dtypes": []},
        ],
    }
    assert [one.formats for one in served_by("agent-1", about)] == [("bf16",), ("bf16", "fp8")]


# What a run of the suite lets through


def rewritten(**changes: Any) -> dict[str, Any]:
    """As somebody would write it who knows how digests are made."""
    told = {**shipped_quality(), **changes}
    told.pop("digest")
    return {**told, "digest": sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()}


def verdicts(artefact: Artefact, scales: Any = "any") -> dict[str, str]:
    found = {
        one: artefact.of(one, scales)
        for one in ("bf16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "k8v4", "int4", "nvfp4")
    }
    return {one: measured.verdict for one, measured in found.items() if measured is not None}


def test_the_shipped_results_say_what_was_measured_and_no_more() -> None:
    artefact = artefact_load(SHIPPED)
    assert artefact.doubt == ""
    passed = dict.fromkeys(("bf16", "fp8", "int8", "k8v4", "int4", "nvfp4"), "passed")
    assert verdicts(artefact) == passed | {"fp8_e4m3": "unresolved", "fp8_e5m2": "unresolved"}
    assert verdicts(artefact, "calibrated")["fp8_e5m2"] == "passed"
    assert verdicts(artefact, "neutral")["fp8_e5m2"] == "unresolved"


def test_a_file_that_was_changed_is_refused() -> None:
    told = shipped_quality()
    told["measurements"][3]["verdict"] = "passed"
    told["documents"] += 1
    with pytest.raises(InvalidFields, match="digest: does not fit"):
        artefact_read(told)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"is_quick": True}, "quick"),
        ({"is_control_rejected": False}, "blind"),
        ({"measurements": []}, "fp32 or bf16"),
    ],
)
def test_a_run_that_decides_nothing_is_doubted(changes: dict[str, Any], words: str) -> None:
    assert words in artefact_read(rewritten(**changes)).doubt


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schema": "luminet/quality/0"}, "artefact.schema"),
        ({"backend": ""}, "artefact.backend"),
        ({"model_revision": 7}, "artefact.model_revision"),
        ({"measurements": [{"kv_format": "int8"}]}, "artefact.measurements.0.verdict"),
    ],
)
def test_what_is_no_such_file_is_refused_naming_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidFields) as refused:
        artefact_read(rewritten(**changes))
    assert field in {one.field for one in refused.value.problems}


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "quality-torch-cpu.json"
    path.write_text("[1]", encoding="utf-8")
    with pytest.raises(InvalidFields, match="no JSON object"):
        artefact_load(path)
