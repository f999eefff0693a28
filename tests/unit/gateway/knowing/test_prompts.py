"""A prompt's marks are those of an engine that computes everything, however much of it was known before."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.cache.keys import block_keys, packed_tokens, token_array
from engine_agent.gateway.knowing.chains import marks_of
from engine_agent.gateway.knowing.prompts import CHAT, HEAD_TOKENS, Asking, Prompt, Prompting
from engine_agent.prompts.renderer import Renderer
from tests.engines.rendering import chat_text
from tests.unit.gateway.knowing.saying import NAMESPACE, asking, chat, ground, loaded

COMPLETIONS = "/v1/completions"
WORDS = "The sea was calm and the ship sailed on through the night. "
TEXT = st.text(alphabet=st.sampled_from("ab \nü.世<|im_end>"), max_size=60)


@pytest.fixture
async def prompting() -> AsyncIterator[Prompting]:
    made = Prompting()
    yield made
    made.close()


def tokens_of(body: dict[str, Any]) -> list[int]:
    told = chat_text(loaded().bundle.template, body)
    return loaded().bundle.encode(told.text, add_special=told.adds_special)


def marks(tokens: list[int], salt: bytes = b"", **kind: Any) -> bytes:
    where = ground(**kind)
    return marks_of(
        block_keys(where.root(NAMESPACE, salt), packed_tokens(token_array(tokens)), where.block_tokens).packed
    )


def marks_found(prompt: Prompt | None) -> bytes:
    assert prompt is not None
    (marked,) = prompt.chains.values()
    return marked.marks


async def read(prompting: Prompting, told: Asking) -> Prompt:
    found = await prompting.read(told)
    assert found is not None
    return found


def test_a_chat_that_grows_has_the_marks_of_one_that_comes_at_once() -> None:
    async def grown(texts: list[str]) -> None:
        prompting = Prompting(renderer=renderer)
        for count in range(1, len(texts) + 1):
            body = chat(*texts[:count])
            found = await read(prompting, asking(body))
            assert found.is_whole
            assert found.tokens.tolist() == tokens_of(body)
            assert marks_found(found) == marks(tokens_of(body))

    renderer = Renderer(wait_seconds=60)  # one for all examples: it takes a while to start
    with asyncio.Runner() as runner:
        given(texts=st.lists(TEXT, min_size=1, max_size=8))(lambda texts: runner.run(grown(texts)))()
        renderer.close()


async def test_what_makes_blocks_others_makes_marks_others(prompting: Prompting) -> None:
    body = chat(WORDS * 3, WORDS)
    told = tokens_of(body)
    assert marks_found(await prompting.read(asking(body))) == marks(told)
    assert marks_found(await prompting.read(asking(body, salt=b"mine"))) == marks(told, b"mine")
    assert marks_found(await prompting.read(asking(body, kv_format="int4"))) == marks(told, kv_format="int4")
    assert marks_found(await prompting.read(asking(body, block_tokens=32))) == marks(told, block_tokens=32)


async def test_a_text_and_its_tokens_are_one_prompt(prompting: Prompting) -> None:
    ids = loaded().bundle.encode(WORDS * 4)
    by_text = await read(prompting, asking({"prompt": WORDS * 4}, COMPLETIONS))
    by_ids = await read(prompting, asking({"prompt": ids}, COMPLETIONS))
    of_several = await read(prompting, asking({"prompt": [ids, ids[:9]]}, COMPLETIONS))
    assert marks_found(by_text) == marks_found(by_ids) == marks_found(of_several) == marks(ids)
    assert (by_text.is_only, of_several.is_only) == (True, False)


@pytest.mark.parametrize("count", [1_023, 1_024, 1_025, 5_000])
async def test_long_lists_of_tokens_are_hashed_whole(prompting: Prompting, count: int) -> None:
    ids = [number % 2_000 for number in range(count)]
    for _ in range(2):  # as what is new, and as what is known
        found = await read(prompting, asking({"prompt": ids}, COMPLETIONS))
        assert (found.known_tokens, found.is_whole) == (count, True)
        assert found.tokens.tolist() == ids[:HEAD_TOKENS]
        assert marks_found(found) == marks(ids)


async def test_of_a_long_cold_prompt_the_head_is_known_and_the_rest_made_up_for(prompting: Prompting) -> None:
    body = chat(*[f"{number}. {WORDS * 12}" for number in range(60)])
    told = tokens_of(body)
    cold = await read(prompting, asking(body))
    assert not cold.is_whole
    assert 3_000 < cold.known_tokens < len(told) / 2
    assert marks(told).startswith(marks_found(cold))
    for _ in range(500):
        warm = await read(prompting, asking(body))
        if warm.is_whole:
            break
        await asyncio.sleep(0.02)
    assert warm.is_whole
    assert marks_found(warm) == marks(told)
    assert warm.tokens.tolist() == told[:HEAD_TOKENS]


async def test_of_a_long_chat_that_goes_on_nothing_is_tokenised_and_no_thread_is_waited_for(
    prompting: Prompting,
) -> None:
    texts = [f"{number}. {WORDS * 12}" for number in range(60)]
    for _ in range(500):
        if (before := await read(prompting, asking(chat(*texts)))).is_whole:
            break
        await asyncio.sleep(0.02)
    assert before.is_whole
    grown = chat(*texts, f"more {WORDS * 12}", f"and more {WORDS * 12}")
    told = tokens_of(grown)
    prompting._threads.shutdown()
    found = await read(prompting, replace(asking(grown), is_light=True))
    assert not found.is_whole
    assert before.known_tokens * 0.98 < found.known_tokens < len(told)
    assert marks(told).startswith(marks_found(found))


async def test_an_engine_always_computes_the_last_token(prompting: Prompting) -> None:
    found = await read(prompting, asking({"prompt": list(range(32))}, COMPLETIONS))
    assert found.matchable(ground()) == 16
    found = await read(prompting, asking({"prompt": list(range(33))}, COMPLETIONS))
    assert found.matchable(ground()) == 32


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, CHAT),
        ({"messages": []}, CHAT),
        ({"messages": "none"}, CHAT),
        ({"messages": [{"role": "user"}]}, CHAT),
        ({"messages": [{"role": "user", "content": {"a": 1}}]}, CHAT),
        ({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": 3}, CHAT),
        ({}, COMPLETIONS),
        ({"prompt": None}, COMPLETIONS),
        ({"prompt": []}, COMPLETIONS),
        ({"prompt": [-1]}, COMPLETIONS),
        ({"prompt": [2**32]}, COMPLETIONS),
        ({"prompt": [1, "a"]}, COMPLETIONS),
        ({"prompt": {"a": 1}}, COMPLETIONS),
        ({"prompt": "\ud800"}, COMPLETIONS),
    ],
)
async def test_what_cannot_be_rendered_is_left_to_the_engine(prompting: Prompting, body: Any, path: str) -> None:
    assert await prompting.read(asking(body, path)) is None


async def test_nothing_that_is_remembered_or_shown_has_anybodys_text(prompting: Prompting) -> None:
    found = await read(prompting, asking(chat("a very particular secret " * 20)))
    assert "secret" not in repr(found)
    assert b"secret" not in repr((prompting._tokens._held, prompting._links._held)).encode()
