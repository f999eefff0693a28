"""A whole engine whose blocks go to the host and come back: the same tokens, whatever became of them there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_agent.cache.pool import Arena
from engine_agent.engine.kv_pages import KvPages
from tests.engines.driving import GREEDY, Driven, drive, make_prompt
from tests.engines.families import make_model
from tests.engines.snapshots import make_snapshot
from tests.unit.engine_pages.making import held_up, host_of

PROMPT = make_prompt(100, seed=1)
OTHERS = [make_prompt(100, seed=seed) for seed in range(2, 6)]
FORMATS = ["fp32", "fp8", "int4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "llama", "llama")


@pytest.fixture
def driven(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driven]:
    """A pool that has room for two prompts, and a host's that has room for many."""
    monkeypatch.setattr(KvPages, "worth_loading", lambda self, seconds: list(self.layouts))
    snapshot = make_snapshot({"one": {"offload": "host"}, "two": {"offload": "host"}})
    driven = drive(folder, snapshot=snapshot, pool_pages=20, host_bytes=64 << 20)
    yield driven
    driven.engine.parts.pages.close()


def asked(driven: Driven, prompt: list[int], kv_format: str) -> tuple[list[int], int]:
    """The answer, and how much of the prompt was cached."""
    heard = driven.ask(prompt, asked={"kv_dtype": kv_format}, max_tokens=8, **GREEDY)
    driven.run(heard)
    assert heard.error is None
    assert len(heard.admissions) == 1
    return heard.tokens(), heard.cached_tokens


def displaced(driven: Driven, kv_format: str) -> list[int]:
    """The prompt's answer. Nothing of it is left on the device."""
    answer, _ = asked(driven, PROMPT, kv_format)
    assert asked(driven, PROMPT, kv_format) == (answer, 96)
    others = OTHERS if kv_format == "fp32" else [make_prompt(150, seed=seed) for seed in range(2, 20)]
    for other in others:
        asked(driven, other, kv_format)
    assert demoted(driven) >= 6
    return answer


def demoted(driven: Driven) -> int:
    return driven.engine.manager.stats("one").counters.demoted_blocks


@pytest.mark.parametrize("kv_format", FORMATS)
def test_what_comes_back_from_the_host_is_a_hit_like_any_other(driven: Driven, kv_format: str) -> None:
    answer = displaced(driven, kv_format)
    assert asked(driven, PROMPT, kv_format) == (answer, 96)
    assert driven.engine.manager.stats("one").counters.loaded_blocks >= 6
    driven.settle()


def test_a_block_that_changed_on_the_host_is_computed_again_and_never_said_to_be_a_hit(driven: Driven) -> None:
    answer = displaced(driven, "fp32")
    pages = driven.engine.parts.pages
    pages.settle()
    host_of(pages).host.bytes ^= 1
    before = driven.engine.manager.stats("one").counters
    assert asked(driven, PROMPT, "fp32") == (answer, 0)
    after = driven.engine.manager.stats("one").counters
    assert after.requests == before.requests + 1
    assert after.cached_tokens == before.cached_tokens
    assert after.damaged_blocks > 0
    assert driven.engine.notices.counts["damaged_block"] > 0
    assert asked(driven, PROMPT, "fp32") == (answer, 96)
    driven.settle()


def test_others_run_while_a_prompt_waits_for_its_blocks(driven: Driven) -> None:
    answer = displaced(driven, "fp32")
    pages = driven.engine.parts.pages
    with held_up(pages) as go_on:
        waiting = driven.ask(PROMPT, max_tokens=8, **GREEDY)
        other = driven.ask(make_prompt(20, seed=9), namespace="two", max_tokens=8, **GREEDY)
        driven.run(other)
        assert len(other.tokens()) == 8
        assert not waiting.admissions, "what it is worth is told when it is known"
        go_on.set()
        driven.run(waiting)
    assert (waiting.tokens(), waiting.cached_tokens) == (answer, 96)
    driven.settle()


def test_whoever_leaves_while_its_blocks_are_on_their_way_leaves_nothing_behind(driven: Driven) -> None:
    answer = displaced(driven, "fp32")
    with held_up(driven.engine.parts.pages) as go_on:
        leaving = driven.ask(PROMPT, max_tokens=8, **GREEDY)
        driven.engine.step()
        assert leaving.job is not None
        driven.engine.cancel(leaving.job)
        driven.settle()
        go_on.set()
    assert asked(driven, PROMPT, "fp32") == (answer, 96)
    driven.settle()


def test_without_offload_in_its_policy_nothing_of_a_namespace_reaches_the_host(folder: Path) -> None:
    driven = drive(folder, pool_pages=20, host_bytes=64 << 20)
    for prompt in [PROMPT, PROMPT, *OTHERS]:
        asked(driven, prompt, "fp32")
    storages: tuple[Arena, ...] = driven.engine.parts.pages.storages
    assert demoted(driven) == 0
    assert all(storage.used_bytes == 0 for storage in storages[1:])
    driven.engine.parts.pages.close()
