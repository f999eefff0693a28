"""What `luminet agent` says of itself before its engine has told more."""

import pytest

from engine_agent.sidecar.command import _about, _read, parser

PLACES = {"own": ["--model", "folder"], "another's": ["--engine-state", "folder"]}


def backend_told(whose: str, *options: str) -> str:
    told, others = parser().parse_known_args([*PLACES[whose], *options])
    return str(_about(_read(told, others))["backend"])


@pytest.mark.parametrize("said", [["--backend", "vllm"], ["--pool", "1GiB", "--backend=vllm"]], ids=" ".join)
def test_an_agent_whose_engine_will_run_vllm_joins_as_one(said: list[str]) -> None:
    assert backend_told("own", *said) == "vllm"


def test_one_whose_engine_is_ours_or_is_not_known_yet_joins_as_ours() -> None:
    assert backend_told("own", "--pool", "1GiB") == "paged"
    assert backend_told("another's") == "paged"
