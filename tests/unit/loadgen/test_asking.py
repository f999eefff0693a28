"""One question and what becomes of it, over real sockets to a server that is told how to behave."""

import asyncio
import socket
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from engine_agent.tools.errors import ToolError
from engine_agent.tools.loadgen.asking import ask, session
from engine_agent.tools.loadgen.finding import find_server
from engine_agent.tools.loadgen.outcome import Outcome
from engine_agent.tools.loadgen.running import send_at, send_together, timed
from engine_agent.tools.loadgen.server import Form, Server
from engine_agent.tools.loadgen.workloads import Asked, Vocabulary, random_prompts
from tests.unit.loadgen.openai_server import MODEL, Scripted, serving

WORDS = Vocabulary()
ASKED = Asked(WORDS.draw(30, "one"), 5)


def server(url: str, **more: Any) -> Server:
    return Server(url, MODEL, **more)


async def outcome_of(scripted: Scripted, asked: Asked = ASKED, **more: Any) -> Outcome:
    async with serving(scripted) as url, session() as opened:
        return await ask(opened, server(url, **more), asked)


async def test_an_answer_has_its_times_and_its_tokens() -> None:
    outcome = await outcome_of(Scripted())
    assert outcome.error is None
    assert outcome.ttft_seconds is not None
    assert 0 < outcome.ttft_seconds <= outcome.seconds
    assert len(outcome.gaps_seconds) == 4
    assert outcome.ttft_seconds + sum(outcome.gaps_seconds) == pytest.approx(outcome.seconds)
    assert (outcome.prompt_tokens, outcome.output_tokens, outcome.cached_tokens) == (30, 5, 0)
    assert outcome.tpot_seconds == pytest.approx(sum(outcome.gaps_seconds) / 4)


async def test_the_time_to_the_first_token_is_not_that_of_the_role() -> None:
    async def wait(response: web.StreamResponse) -> None:
        await asyncio.sleep(0)

    outcome = await outcome_of(Scripted(misbehave=wait), form=Form(is_chat=True, takes_ids=False))
    assert len(outcome.gaps_seconds) == 4  # five tokens: the piece with the role is none


async def test_what_is_asked_is_what_the_options_say() -> None:
    scripted = Scripted(key="secret")
    await outcome_of(scripted, key="secret", extra={"kv_cache_dtype": "int4"}, form=Form(ignores_eos=False))
    (body,) = scripted.bodies
    assert body["prompt"] == list(ASKED.tokens)
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (5, 0, True)
    assert body["stream_options"] == {"include_usage": True}
    assert body["kv_cache_dtype"] == "int4"
    assert "ignore_eos" not in body


async def test_a_header_that_differs_from_the_usage_is_noticed() -> None:
    same, other = [await outcome_of(Scripted(headers={"x-luminet-cached-tokens": count})) for count in ("0", "16")]
    assert not same.is_contradictory
    assert other.is_contradictory
    assert other.header_cached_tokens == 16


async def test_a_refusal_is_counted_by_status_and_code() -> None:
    outcome = await outcome_of(Scripted(key="secret"), key="wrong")
    assert (outcome.error, outcome.detail) == ("HTTP 401 invalid_api_key", "Incorrect API key")


async def test_a_stream_that_breaks_off_is_no_answer() -> None:
    async def hang_up(response: web.StreamResponse) -> None:
        raise ConnectionResetError

    outcome = await outcome_of(Scripted(misbehave=hang_up))
    assert outcome.error in ("the connection broke", "the stream broke off")


async def test_a_stream_that_ends_without_its_end_is_no_answer() -> None:
    async def end(response: web.StreamResponse) -> None:
        await response.write_eof()
        raise ConnectionResetError

    assert (await outcome_of(Scripted(misbehave=end))).error == "the stream broke off"


async def test_an_error_in_the_stream_is_an_error() -> None:
    async def fail(response: web.StreamResponse) -> None:
        await response.write(b'data: {"error": {"message": "the engine failed"}}\n\n')

    outcome = await outcome_of(Scripted(misbehave=fail))
    assert (outcome.error, outcome.detail) == ("an error in the stream", "the engine failed")


async def test_an_answer_that_is_no_json_is_an_error() -> None:
    async def mumble(response: web.StreamResponse) -> None:
        await response.write(b"data: {mumble\n\n")

    assert (await outcome_of(Scripted(misbehave=mumble))).error == "an answer that cannot be read"


async def test_an_answer_that_takes_too_long_is_given_up() -> None:
    never = asyncio.Event()

    async def wait(response: web.StreamResponse) -> None:
        await never.wait()

    async with serving(Scripted(misbehave=wait)) as url, session() as opened:
        outcome = await ask(opened, server(url, timeout_seconds=0.2), ASKED)
        never.set()
    assert outcome.error == "no answer in time"


async def test_nobody_there_is_said_as_such() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with session() as opened:
            outcome = await ask(opened, server(f"http://127.0.0.1:{taken.getsockname()[1]}/v1"), ASKED)
    assert outcome.error == "cannot connect"


# Finding out how a server wants to be asked


async def found(scripted: Scripted, wants: str = "auto", **more: Any) -> Server:
    async with serving(scripted) as url, session() as opened:
        return await find_server(opened, replace(Server(url, ""), **more), wants=wants, vocabulary=WORDS)


async def test_token_ids_are_sent_where_they_are_taken() -> None:
    server = await found(Scripted())
    assert server.model == MODEL
    assert server.form == Form()


async def test_a_server_without_token_ids_gets_text_of_the_length_asked_for() -> None:
    scripted = Scripted(takes_ids=False, tokens_per_word=3)
    server = await found(scripted)
    assert server.form == Form(takes_ids=False, tokens_per_word=3.0)
    assert len(server.body(Asked(WORDS.draw(300, "text"), 1))["prompt"].split()) == 100


async def test_a_server_that_does_not_know_ignore_eos_is_asked_without() -> None:
    assert (await found(Scripted(knows_ignore_eos=False))).form == Form(ignores_eos=False)


async def test_chats_are_asked_as_chats() -> None:
    scripted = Scripted()
    assert (await found(scripted, "chat")).form.is_chat
    assert scripted.bodies[0]["messages"][0]["role"] == "user"


async def test_a_server_that_refuses_everything_is_named_with_its_reason() -> None:
    with pytest.raises(ToolError, match=r"v1/completions: HTTP 401 invalid_api_key: Incorrect API key"):
        await found(Scripted(key="secret"))


# Sending many


async def test_requests_go_at_their_time_whatever_has_been_answered() -> None:
    """The server answers nobody before all ten are there: a client that waited for answers would wait for ever."""
    scripted = Scripted(hold=asyncio.Event(), release_at=10)
    workload = random_prompts(10, input_tokens=20, output_tokens=2, vocabulary=WORDS)
    async with serving(scripted) as url, session() as opened:
        moments = [0.01 * number for number in range(10)]
        outcomes = await send_at(opened, server(url), timed(workload, moments))
    assert [one.error for one in outcomes] == [None] * 10
    assert scripted.most_running == 10
    for outcome, moment in zip(outcomes, moments, strict=True):
        assert outcome.sent_seconds >= moment
        assert outcome.sent_seconds == pytest.approx(moment + outcome.late_seconds, abs=1e-3)


async def test_a_concurrency_is_reached_and_never_passed() -> None:
    scripted = Scripted(hold=asyncio.Event(), release_at=4)
    workload = random_prompts(12, input_tokens=20, output_tokens=2, vocabulary=WORDS)
    answered: list[int] = []
    async with serving(scripted) as url, session() as opened:
        outcomes = await send_together(opened, server(url), workload, concurrency=4, on_answer=answered.append)
    assert scripted.most_running == 4
    assert [one.error for one in outcomes] == [None] * 12
    assert answered == list(range(1, 13))
