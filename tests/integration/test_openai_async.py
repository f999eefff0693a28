"""The real `openai` client, asynchronous, and whatever does not go as it should: clients that leave, lose patience or
come again. Every claim holds at an engine and at a gateway before one.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from engine_agent.journal.journal import Closed
from tests.integration.openai_doors import WAYS, Door, opened
from tests.integration.openai_engine import MODEL
from tests.support.waiting import wait_until

ENDLESS: Any = {"model": MODEL, "prompt": "The sea", "max_tokens": 1_500, "extra_body": {"ignore_eos": True}}
SHORT: Any = {"model": MODEL, "prompt": "The sea", "max_tokens": 2}


@pytest.fixture(scope="module", params=WAYS)
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with opened(request.param, tmp_path_factory.mktemp("journal")) as door:
        yield door


@pytest.fixture(autouse=True)
def serves_on(door: Door) -> Iterator[None]:
    """After each of them nothing runs, and every block is accounted for."""
    yield
    door.engine.until_idle()


def closings(door: Door, seen: int) -> list[str]:
    return [record.outcome for record in door.engine.records[seen:] if isinstance(record, Closed)]


async def test_many_at_once_each_get_their_own_answer_in_one_piece_or_as_a_stream(door: Door) -> None:
    async def whole(number: int) -> str:
        answer = await client.completions.create(model=MODEL, prompt=f"No. {number}:", max_tokens=6, echo=True)
        return answer.choices[0].text

    async def streamed(number: int) -> str:
        stream = await client.completions.create(
            model=MODEL, prompt=f"No. {number}:", max_tokens=6, echo=True, stream=True
        )
        return "".join([part.choices[0].text async for part in stream])

    async with door.async_client() as client:
        texts = await asyncio.gather(*((streamed if number % 2 else whole)(number) for number in range(12)))
    assert [text.startswith(f"No. {number}:") for number, text in enumerate(texts)] == [True] * 12


async def test_a_chats_stream_comes_with_its_headers_and_its_usage(door: Door) -> None:
    messages: Any = [{"role": "user", "content": "Where are we?"}]
    options: Any = {"model": MODEL, "messages": messages, "max_tokens": 6, "temperature": 0}
    async with door.async_client() as client:
        whole = await client.chat.completions.create(**options)
        create = client.chat.completions.with_streaming_response.create
        async with create(**options, stream=True, stream_options={"include_usage": True}) as answer:
            assert answer.headers["x-luminet-prompt-tokens"]
            parts = [part async for part in await answer.parse()]
    assert "".join(part.choices[0].delta.content or "" for part in parts[:-1]) == whole.choices[0].message.content
    assert parts[-1].usage is not None
    assert whole.usage is not None
    assert parts[-1].usage.total_tokens == whole.usage.total_tokens


async def test_models_and_mistakes_are_as_for_everybody(door: Door) -> None:
    async with door.async_client() as client, door.async_client(api_key="sk-other") as stranger:
        assert [model.id async for model in client.models.list()] == [MODEL]
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="gpt-9", prompt="x")
        with pytest.raises(openai.AuthenticationError):
            await stranger.completions.create(**SHORT)


async def test_a_stream_that_is_left_ends_at_the_engine(door: Door) -> None:
    seen = len(door.engine.records)
    async with door.async_client() as client:
        async with await client.completions.create(**ENDLESS, stream=True) as stream:
            async for _ in stream:
                break
        await asyncio.to_thread(wait_until, lambda: closings(door, seen) == ["cancelled"])
        assert (await client.completions.create(**SHORT)).choices


async def test_an_answer_that_nobody_waits_for_any_more_ends_and_counts_nowhere(door: Door) -> None:
    seen = len(door.engine.records)
    async with door.async_client() as client:
        asking = asyncio.create_task(client.completions.create(**ENDLESS))
        await asyncio.to_thread(door.engine.until_busy)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.to_thread(door.engine.until_idle)
    assert len(door.engine.records) == seen


async def test_a_client_that_loses_patience_raises_a_timeout_and_frees_the_engine(door: Door) -> None:
    seen = len(door.engine.records)
    async with door.async_client(timeout=openai.Timeout(30, read=0.2)) as client:
        with pytest.raises(openai.APITimeoutError):
            await client.completions.create(**ENDLESS)
        await asyncio.to_thread(door.engine.until_idle)
    assert len(door.engine.records) == seen


def test_a_client_that_is_refused_for_now_comes_again_by_itself(door: Door) -> None:
    """An engine that is being drained says when to come again, and the client does."""
    statuses: list[int] = []
    hooks: Any = {"response": [lambda response: statuses.append(response.status_code)]}
    drain = door.engine.backend.drain
    door.engine.do(drain(True))
    try:
        with (
            door.client(max_retries=8, http_client=openai.DefaultHttpxClient(event_hooks=hooks)) as client,
            ThreadPoolExecutor(1) as pool,
        ):
            asked = pool.submit(lambda: client.completions.create(**SHORT))
            wait_until(lambda: bool(statuses))
            door.engine.do(drain(False))
            assert asked.result().choices
    finally:
        door.engine.do(drain(False))
    assert set(statuses[:-1]) == {503}
    assert statuses[-1] == 200


def test_a_client_that_will_not_come_again_raises_what_it_was_told(door: Door) -> None:
    door.engine.do(door.engine.backend.drain(True))
    try:
        with door.client() as client, pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(**SHORT)
    finally:
        door.engine.do(door.engine.backend.drain(False))
    assert (caught.value.status_code, caught.value.code) == (503, "overloaded")
    assert int(caught.value.response.headers["retry-after"]) > 0
