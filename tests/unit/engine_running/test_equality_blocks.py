"""Where blocks go: nobody who has left keeps one."""

from pathlib import Path
from typing import Any

import pytest

from engine_agent.engine.params import BeamParams
from tests.engines.driving import GREEDY, drive, make_prompt
from tests.engines.families import make_model
from tests.engines.snapshots import make_snapshot

KINDS: list[dict[str, Any]] = [
    {**GREEDY},
    {"n": 4, "seed": 1},
    {"n": 3, "beam": BeamParams()},
    {"stop": ("zzzzzz",), "logprobs": 2, "ignore_eos": True},  # drawn: it may end of itself at any step
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "llama", "llama")


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 9])
@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_a_request_that_is_cancelled_frees_its_blocks(folder: Path, settings: dict[str, Any], steps: int) -> None:
    driven = drive(folder, snapshot=make_snapshot({"one": {"prefix_caching": False}}), chunk_tokens=16)
    heard = driven.ask(make_prompt(40), max_tokens=50, **settings)
    stays = driven.ask(make_prompt(30), max_tokens=20, **GREEDY)
    for _ in range(steps):
        driven.engine.step()
    before = driven.used_bytes
    assert heard.job is not None
    driven.engine.cancel(heard.job)
    driven.engine.cancel(heard.job)  # nobody minds a second time
    assert driven.used_bytes < before or not steps
    said = len(heard.deltas)
    driven.run()
    assert len(heard.deltas) == said
    assert not heard.is_over  # who has left hears nothing more
    assert stays.finish() == "length"
    driven.settle()
    accounts = driven.engine.manager.cache.namespace("one").accounts
    assert accounts[0].resident_bytes == 0


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_an_answer_that_ends_frees_its_blocks(folder: Path, settings: dict[str, Any]) -> None:
    driven = drive(folder, snapshot=make_snapshot({"one": {"prefix_caching": False}}))
    heard = driven.ask(make_prompt(40), max_tokens=30, **settings)
    driven.run()
    assert heard.is_over
    assert {heard.finish(choice) for choice in range(settings.get("n", 1))} <= {"stop", "length"}
    driven.settle()
    assert driven.engine.manager.cache.namespace("one").accounts[0].resident_bytes == 0


def test_parallel_answers_hold_their_prompts_blocks_once(folder: Path) -> None:
    """Four answers to 160 tokens: ten full blocks together, and a few of their own."""
    driven = drive(folder, chunk_tokens=512)
    driven.ask(make_prompt(160), n=4, max_tokens=40, seed=1, ignore_eos=True)
    for _ in range(10):
        driven.engine.step()
    page_bytes = driven.engine.parts.pages.layouts["fp32"].page_bytes
    assert driven.used_bytes == (10 + 4) * page_bytes
    driven.run()
    driven.settle()
