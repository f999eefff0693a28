"""What agents say of themselves comes from outside: all of it is checked."""

from typing import Any

import pytest

from controlplane.fleet.about import about_read
from controlplane.fleet.errors import MalformedRequest
from tests.database.factories import about_agent
from tests.support.case_names import case_name


def test_what_is_well_formed_is_kept_as_it_is() -> None:
    told = about_agent(accelerator={"name": "NVIDIA H100", "memory_bytes": 1 << 36}, labels={"tier": "canary"})
    assert about_read(told) == told


def test_what_a_newer_agent_says_besides_is_left_out() -> None:
    assert about_read(about_agent(colour="blue")) == about_agent()


def test_formats_that_no_policy_can_name_are_left_out_and_the_rest_is_believed() -> None:
    """An engine on a CPU without bfloat16 computes in float32, and can do `fp32` besides; a newer one may do more."""
    model = {"name": "m", "revision": "r", "kv_dtypes": ["fp32", "bf16", "fp8"], "context_tokens": 1}
    pool = {"capacity_bytes": 1, "block_tokens": 16, "block_bytes": {"fp32": 8, "bf16": 4, "fp7": 2}}
    told = about_read(about_agent(models=[model], kv_dtypes=["fp32", "fp8", "fp7"], pool=pool))
    assert (told["kv_dtypes"], told["models"][0]["kv_dtypes"]) == (["fp8"], ["bf16", "fp8"])
    assert told["pool"]["block_bytes"] == {"bf16": 4}


def test_a_sidecar_of_before_tells_no_version_of_what_computes_and_no_format_by_another_name() -> None:
    told = about_agent(backend="paged")
    del told["backend_version"], told["computed_as"]
    read = about_read(told)
    assert (read["backend"], read["backend_version"], read["computed_as"]) == ("paged", "", {})


def test_formats_computed_as_another_are_believed_where_policies_know_both() -> None:
    told = about_agent(backend="vllm", backend_version="0.32.0", computed_as={"fp8": "fp8_e4m3", "fp8_e5m2": "fp7"})
    read = about_read(told)
    assert (read["backend"], read["backend_version"], read["computed_as"]) == (
        "vllm",
        "0.32.0",
        {"fp8": "fp8_e4m3"},
    )


def test_a_gateway_need_not_say_what_only_engines_have() -> None:
    told = about_read({"backend": "gateway", "version": "0.1.0", "address": "http://127.0.0.1:8080"})
    assert told["models"] == told["kv_dtypes"] == []
    assert told["accelerator"] is None


BAD: list[tuple[str, dict[str, Any]]] = [
    ("about.backend", {"backend": "an abacus"}),
    ("about.version", {"version": 1}),
    ("about.backend_version", {"backend_version": "0.32\n"}),
    ("about.computed_as", {"computed_as": ["fp8"]}),
    ("about.computed_as.fp8", {"computed_as": {"fp8": 8}}),
    ("about.version", {"version": "x" * 201}),
    ("about.version", {"version": "0.1\x00"}),
    ("about.platform", {"platform": "a\nb"}),
    ("about.address", {"address": "agent-1"}),
    ("about.address", {"address": "ftp://10.0.0.7:21"}),
    ("about.address", {"address": "http://10.0.0.7"}),
    ("about.address", {"address": "http://user:secret@10.0.0.7:8101"}),
    ("about.address", {"address": "http://10.0.0.7:8101/elsewhere"}),
    ("about.address", {"address": "http://10.0.0.7:8101?x=1"}),
    ("about.address", {"address": "http://10.0.0.7:99999"}),
    ("about.address", {"address": "http://[::1:8101"}),
    ("about.address", {"address": "http://10.0.0.7:8101\r\nx: y"}),
    ("about.kv_dtypes", {"kv_dtypes": "fp8"}),
    ("about.kv_dtypes.0", {"kv_dtypes": [8]}),
    ("about.kv_dtypes", {"kv_dtypes": ["fp8"] * 17}),
    ("about.models.0.name", {"models": [{"name": "", "revision": "r", "kv_dtypes": [], "context_tokens": 1}]}),
    (
        "about.models.0.context_tokens",
        {"models": [{"name": "m", "revision": "r", "kv_dtypes": [], "context_tokens": -1}]},
    ),
    ("about.models", {"models": [{"name": "m", "revision": "r", "kv_dtypes": [], "context_tokens": 1}] * 65}),
    ("about.pool.capacity_bytes", {"pool": {"capacity_bytes": 2**60}}),
    ("about.pool.capacity_bytes", {"pool": {"capacity_bytes": True}}),
    ("about.pool.block_bytes.fp8", {"pool": {"block_bytes": {"fp8": -1}}}),
    ("about.accelerator.memory_bytes", {"accelerator": {"name": "x"}}),
    ("about.labels.Tier", {"labels": {"Tier": "x"}}),
    ("about.labels.tier", {"labels": {"tier": "a b"}}),
    ("about.labels", {"labels": {f"l{number}": "x" for number in range(33)}}),
]


def test_what_is_not_is_refused_by_its_name(subtests: pytest.Subtests) -> None:
    for field, change in BAD:
        with subtests.test(msg=case_name(field, change)):
            with pytest.raises(MalformedRequest) as refused:
                about_read(about_agent(**change))
            assert [one.field for one in refused.value.problems] == [field]


def test_everything_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(MalformedRequest) as refused:
        about_read({"backend": "an abacus", "address": "x"})
    assert {one.field for one in refused.value.problems} == {"about.backend", "about.version", "about.address"}


@pytest.mark.parametrize("told", [None, [], "x", 7])
def test_what_is_no_object_is_refused(told: Any) -> None:
    with pytest.raises(MalformedRequest, match="about: must be an object"):
        about_read(told)
