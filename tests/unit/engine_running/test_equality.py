"""The engine's tokens are those of `transformers`, whatever else it does meanwhile.

Models of every family with random float32 weights and `fp32` pages: then nothing but an error of ours can make a
difference. The same claims hold on a GPU, and are run there with `-m gpu`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine_agent.engine.kv_pages import KvPages
from engine_agent.engine.params import BeamParams
from kernels.native.library import is_ready, status
from tests.engines.driving import GREEDY, Driven, Heard, drive, make_prompt
from tests.engines.families import CONFIGURATIONS, ONE_OF_EACH_FAMILY, PAD, make_model
from tests.engines.oracle import Oracle
from tests.engines.snapshots import FORMATS, make_snapshot

Folders = Callable[[str], Path]
Oracles = Callable[[str], Oracle]
ON_GPU = pytest.mark.gpu


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = make_model(tmp_path_factory.mktemp("models") / name, name)
        return made[name]

    return folder


@pytest.fixture(scope="module")
def oracles(folders: Folders) -> Oracles:
    loaded: dict[str, Oracle] = {}

    def oracle(name: str) -> Oracle:
        if name not in loaded:
            loaded[name] = Oracle(folders(name))
        return loaded[name]

    return oracle


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=ON_GPU)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    before = torch.get_num_threads()
    yield request.param
    torch.set_num_threads(before)


def assert_equal(oracle: Oracle, heard: Heard, prompt: list[int], *, tokens: int, choice: int = 0) -> None:
    assert heard.error is None, heard.error
    answer = heard.tokens(choice)
    assert len(answer) == tokens
    assert answer == oracle.greedy(prompt, answer)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_tokens_are_those_of_transformers(name: str, folders: Folders, oracles: Oracles, device: str) -> None:
    """Six prompts of every configuration at once, 60 in all, 64 tokens each."""
    driven = drive(folders(name), device=device, chunk_tokens=48)
    prompts = [make_prompt(tokens, seed=tokens) for tokens in (1, 15, 16, 17, 65, 90)]
    heard = [driven.ask(prompt, max_tokens=64, **GREEDY) for prompt in prompts]
    driven.run()
    for one, prompt in zip(heard, prompts, strict=True):
        assert_equal(oracles(name), one, prompt, tokens=64)
        assert one.finish() == "length"
    driven.settle()


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_tokens_are_what_generate_itself_says(name: str, folders: Folders, oracles: Oracles, device: str) -> None:
    """With an end where the model ends: the other tests take it from one forward pass over prompt and answer."""
    driven = drive(folders(name), device=device)
    ends = 0
    for seed in range(4):
        prompt = make_prompt(30, seed=seed)
        answer = driven.answer(prompt, max_tokens=40, temperature=0.0, stop_token_ids=(7, 40))
        (expected,) = oracles(name).generated(prompt, 40, eos_token_id=[0, 7, 40])
        assert answer == expected
        ends += answer[-1] in (0, 7, 40)
    assert ends


@pytest.mark.parametrize("chunk_tokens", [1, 5, 16, 100, 512])
@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_a_prompt_may_be_computed_in_chunks_of_any_size(
    name: str, chunk_tokens: int, folders: Folders, oracles: Oracles, device: str
) -> None:
    driven = drive(folders(name), device=device, chunk_tokens=chunk_tokens)
    prompts = [make_prompt(tokens, seed=tokens) for tokens in (48, 33)]
    heard = [driven.ask(prompt, max_tokens=8, **GREEDY) for prompt in prompts]
    driven.run()
    for one, prompt in zip(heard, prompts, strict=True):
        assert_equal(oracles(name), one, prompt, tokens=8)


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_a_prefix_that_is_resident_changes_no_token(name: str, folders: Folders, oracles: Oracles, device: str) -> None:
    driven = drive(folders(name), device=device)
    shared = make_prompt(70)
    driven.answer(shared, max_tokens=1, **GREEDY)
    prompts = [shared + make_prompt(tail, seed=tail) for tail in (1, 10, 26, 40)] + [shared[:40], shared[:33] + [5] * 9]
    heard = [driven.ask(prompt, max_tokens=32, **GREEDY) for prompt in prompts]
    driven.run()
    assert [one.cached_tokens for one in heard] == [64, 64, 64, 64, 32, 32]
    for one, prompt in zip(heard, prompts, strict=True):
        assert_equal(oracles(name), one, prompt, tokens=32)
    again = driven.ask(prompts[3] + heard[3].tokens(), max_tokens=32, **GREEDY)
    driven.run()
    assert again.cached_tokens == 128  # what was generated is a prefix like any other
    assert_equal(oracles(name), again, prompts[3] + heard[3].tokens(), tokens=32)


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
@pytest.mark.parametrize("is_cached", [True, False])
def test_who_is_preempted_ends_with_the_same_tokens(
    name: str, is_cached: bool, folders: Folders, oracles: Oracles, device: str
) -> None:
    snapshot = make_snapshot({"one": {"prefix_caching": is_cached}, "two": {}})
    driven = drive(folders(name), snapshot=snapshot, device=device, pool_pages=20)
    prompts = [make_prompt(20 + seed, seed=seed) for seed in range(8)]
    heard = [
        driven.ask(prompt, max_tokens=64, namespace="two" if at % 3 == 2 else "one", **GREEDY)
        for at, prompt in enumerate(prompts)
    ]
    driven.run()
    assert driven.engine.preemptions > 0
    for one, prompt in zip(heard, prompts, strict=True):
        assert_equal(oracles(name), one, prompt, tokens=64)
    driven.settle()


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_other_formats_in_the_same_batch_change_nothing(
    name: str, folders: Folders, oracles: Oracles, device: str
) -> None:
    driven = drive(folders(name), device=device)
    prompts = [make_prompt(30 + at, seed=at) for at in range(4)]
    heard, others = [], []
    for at, kv_format in enumerate(FORMATS):
        if at % 2:
            heard.append(driven.ask(prompts[at // 2], max_tokens=24, **GREEDY))
        asked = {"kv_dtype": kv_format}
        others.append(driven.ask(make_prompt(25 + 3 * at), asked=asked, max_tokens=30, **GREEDY))
    driven.run()
    for one, prompt in zip(heard, prompts, strict=True):
        assert_equal(oracles(name), one, prompt, tokens=24)
    assert [other.admissions[0].kv_dtype for other in others] == list(FORMATS)
    assert all(len(other.tokens()) == 30 for other in others)
    driven.settle()


FORMATS_OF = [("float32", kv_format) for kv_format in ("fp32", *FORMATS)] + [("bfloat16", name) for name in FORMATS]


@pytest.mark.parametrize(("dtype", "kv_format"), FORMATS_OF)
def test_a_hit_says_what_a_miss_would_have_said(dtype: str, kv_format: str, folders: Folders, device: str) -> None:
    """Logprobs and all: what lies in the pages is what would have been computed."""
    prompt = make_prompt(75)
    settings: dict[str, Any] = {"max_tokens": 12, "logprobs": 3, "asked": {"kv_dtype": kv_format}, **GREEDY}
    snapshot = make_snapshot({"one": {"kv_dtype": kv_format}})
    driven = drive(folders("qwen3-window"), snapshot=snapshot, device=device, dtype=dtype, chunk_tokens=32)
    miss, hit = (asked(driven, prompt, **settings) for _ in range(2))
    assert (miss.cached_tokens, hit.cached_tokens) == (0, 64)
    assert said(hit, device) == said(miss, device)
    other = drive(folders("qwen3-window"), snapshot=snapshot, device=device, dtype=dtype, chunk_tokens=512)
    for tail in (1, 12):
        asked(other, prompt[:-tail] + [3] * 20, **settings)
    crowd = [other.ask(make_prompt(40, seed=seed), **settings) for seed in range(3)]
    late = asked(other, prompt, **settings)
    assert late.cached_tokens == 64
    assert said(late, device) == said(miss, device)
    assert all(len(one.tokens()) == 12 for one in crowd)


@pytest.mark.parametrize(("dtype", "kv_format"), [("float32", "fp32"), ("bfloat16", "bf16"), ("bfloat16", "int4")])
@pytest.mark.parametrize("name", ["llama", "qwen3-window"])
def test_a_conversation_goes_on_as_if_it_had_been_one_prompt(
    name: str, dtype: str, kv_format: str, folders: Folders
) -> None:
    """What was generated token by token is, to the bit, what a prompt of the same tokens leaves in the pages."""
    if not is_ready():
        pytest.skip(f"not so without the C kernels, and there are none here: {status()}")
    settings: dict[str, Any] = {"max_tokens": 24, "logprobs": 1, "asked": {"kv_dtype": kv_format}, **GREEDY}
    snapshot = make_snapshot({"one": {"kv_dtype": kv_format}})
    talking, fresh = (drive(folders(name), snapshot=snapshot, dtype=dtype) for _ in range(2))
    prompt = make_prompt(20)
    prompt += [*asked(talking, prompt, **settings).tokens(), 5, 6]
    hit, miss = asked(talking, prompt, **settings), asked(fresh, prompt, **settings)
    assert (hit.cached_tokens, miss.cached_tokens) == (32, 0)
    assert said(hit) == said(miss)


def test_blocks_that_came_back_from_the_host_change_no_token(
    folders: Folders, oracles: Oracles, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KvPages, "worth_loading", lambda pages, seconds: list(pages.layouts))
    snapshot = make_snapshot({"one": {"offload": "host"}})
    driven = drive(folders("llama"), snapshot=snapshot, device=device, pool_pages=20, host_bytes=1 << 20)
    prompt = make_prompt(150)
    for _ in range(2):  # a block that nobody came back for is not worth keeping
        asked(driven, prompt, max_tokens=4, **GREEDY)
    for seed in range(2, 5):
        asked(driven, make_prompt(200, seed=seed), max_tokens=4, **GREEDY)
    heard = asked(driven, prompt, max_tokens=40, **GREEDY)
    assert heard.cached_tokens == 144
    assert driven.engine.parts.pages.stats()["loaded_pages"] > 0
    assert_equal(oracles("llama"), heard, prompt, tokens=40)
    driven.settle()


def test_the_text_is_that_of_its_tokens(folders: Folders, device: str) -> None:
    driven = drive(folders("mistral"), device=device)
    heard = asked(driven, make_prompt(30), n=4, max_tokens=60, seed=3, temperature=2.0)
    for choice in range(4):
        tokens = heard.tokens(choice)
        said_tokens = tokens[:-1] if heard.finish(choice) == "stop" else tokens
        assert heard.text(choice) == driven.engine.parts.tokenizer.decode(said_tokens)
        assert heard.text(choice) or len(tokens) == 1


def asked(driven: Driven, prompt: list[int], **settings: Any) -> Heard:
    heard = driven.ask(prompt, **settings)
    driven.run()
    assert heard.error is None, heard.error
    return heard


def said(heard: Heard, device: str = "cpu") -> list[tuple[int | None, Any]]:
    """Tokens, and where the C kernels compute, logprobs to the last bit: only those promise that much."""
    is_exact = device == "cpu" and is_ready()
    return [(delta.token, delta.logprobs if is_exact else None) for delta in heard.deltas]


SAMPLED: dict[str, Any] = {"seed": 7, "temperature": 1.3, "top_p": 0.95, "frequency_penalty": 0.3, "ignore_eos": True}


@pytest.mark.parametrize("name", ["llama", "qwen3-window"])
def test_a_seed_gives_the_same_tokens_in_any_company(name: str, folders: Folders, device: str) -> None:
    prompt = make_prompt(40)
    alone = drive(folders(name), device=device).answer(prompt, max_tokens=48, **SAMPLED)
    crowded = drive(folders(name), device=device, chunk_tokens=24)
    crowd = [crowded.ask(make_prompt(30, seed=seed), max_tokens=30, temperature=0.9) for seed in range(5)]
    heard = crowded.ask(prompt, max_tokens=48, **SAMPLED)
    crowded.run()
    assert heard.tokens() == alone
    assert all(one.finish() for one in crowd)
    scarce = drive(folders(name), device=device, pool_pages=20)
    heard = scarce.ask(prompt, max_tokens=48, **SAMPLED)
    rivals = [scarce.ask(make_prompt(30, seed=seed), max_tokens=64, **SAMPLED) for seed in range(7)]
    before = scarce.ask(prompt, max_tokens=48, **SAMPLED)
    scarce.run()
    assert scarce.engine.preemptions > 0
    assert heard.tokens() == before.tokens() == alone
    assert all(len(rival.tokens()) == 64 for rival in rivals)
    assert len(set(alone)) > 10


@pytest.mark.parametrize("name", ["llama", "qwen3-window"])
def test_parallel_answers_share_their_prompt_and_are_their_own(
    name: str, folders: Folders, oracles: Oracles, device: str
) -> None:
    prompt = make_prompt(37)
    driven = drive(folders(name), device=device, chunk_tokens=16)
    greedy = asked(driven, prompt, n=3, max_tokens=40, **GREEDY)
    for choice in range(3):
        assert_equal(oracles(name), greedy, prompt, tokens=40, choice=choice)
    four = asked(driven, prompt, n=4, max_tokens=40, **SAMPLED)
    assert len({tuple(four.tokens(choice)) for choice in range(4)}) == 4
    scarce = drive(folders(name), device=device, pool_pages=20)
    again = scarce.ask(prompt, n=4, max_tokens=40, **SAMPLED)
    rivals = [scarce.ask(make_prompt(30, seed=seed), max_tokens=64, **GREEDY) for seed in range(6)]
    scarce.run()
    assert scarce.engine.preemptions > 0
    assert [again.tokens(choice) for choice in range(4)] == [four.tokens(choice) for choice in range(4)]
    assert all(rival.finish() == "length" for rival in rivals)
    scarce.settle()


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_beams_are_those_of_transformers(name: str, folders: Folders, oracles: Oracles, device: str) -> None:
    driven = drive(folders(name), device=device, chunk_tokens=16)
    scarce = drive(folders(name), device=device, pool_pages=20)
    for seed, beams in enumerate((2, 4)):
        prompt = make_prompt(21 + seed, seed=seed)
        rules: dict[str, Any] = {"num_beams": beams, "num_return_sequences": beams}
        expected = oracles(name).generated(prompt, 24, eos_token_id=0, **rules)
        settings: dict[str, Any] = {"n": beams, "max_tokens": 24, "beam": BeamParams()}
        miss, hit = asked(driven, prompt, **settings), asked(driven, prompt, **settings)
        assert hit.cached_tokens == 16
        rivals = [scarce.ask(make_prompt(30, seed=seed), max_tokens=40, **GREEDY) for seed in range(6)]
        preempted = scarce.ask(prompt, **settings)
        scarce.run()
        for heard in (miss, hit, preempted):
            assert [padded(heard.tokens(choice), len(expected[0])) for choice in range(beams)] == expected
        assert all(rival.finish() for rival in rivals)
    assert scarce.engine.preemptions > 0
    driven.settle()
    scarce.settle()


def padded(tokens: list[int], length: int) -> list[int]:
    """As `generate` fills up what ended early."""
    return tokens + [PAD] * (length - len(tokens))
