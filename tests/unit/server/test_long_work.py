"""What takes long beside the engine is done in a thread, once, and not before it is known to be worth it."""

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine_agent.engine.outputs import Delta, Logprob, TokenLogprobs
from engine_agent.journal.journal import Journal
from engine_agent.server.answers import spelt
from engine_agent.server.app import openai_app
from engine_agent.server.attempts import SMALL_ANSWER_TOKENS
from engine_agent.server.guard import Guard
from engine_agent.server.schemas import ChatRequest
from tests.unit.server.asking import SECONDS, Asker
from tests.unit.server.identities import KEY
from tests.unit.server.scripted import CARD, ByteText, PlainTemplate, ScriptedBackend, saying

LONG = "x" * CARD.context_tokens


class WatchedText(ByteText):
    """Knows in which thread a token was last spelt, and how often a prompt was decoded."""

    def __init__(self) -> None:
        self.spelling: threading.Thread | None = None
        self.decoded: list[Sequence[int]] = []

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        self.decoded.append(ids)
        return super().decode(ids, skip_special)

    def token_text(self, token: int) -> str:
        self.spelling = threading.current_thread()
        return super().token_text(token)


@pytest.fixture
def text() -> WatchedText:
    return WatchedText()


@pytest.fixture
def asker(text: WatchedText, backend: ScriptedBackend, journal: Journal, guard: Guard) -> Asker:
    app = openai_app(backend, text, PlainTemplate(), journal, guard, agent_id="agent-1")
    return Asker(app, {"authorization": f"Bearer {KEY}"})


async def test_a_prompt_is_decoded_once_however_many_answers_repeat_it(asker: Asker, text: WatchedText) -> None:
    text.decoded.clear()
    answer = await asker.complete(prompt=[[97, 98], [99]], n=5, echo=True)
    assert [choice["text"] for choice in answer.document["choices"]] == ["abHello"] * 5 + ["cHello"] * 5
    assert text.decoded == [[97, 98], [99]]


@pytest.mark.parametrize("prompt", [[97] * CARD.context_tokens, [97, CARD.vocab_size], [10**4_000]])
async def test_nothing_is_made_of_a_prompt_that_cannot_be_served(
    asker: Asker, text: WatchedText, backend: ScriptedBackend, prompt: list[int]
) -> None:
    text.decoded.clear()
    answer = await asker.complete(prompt=prompt, echo=True)
    assert (answer.status, answer.error["param"]) == (400, "prompt")
    assert len(answer.error["message"]) < 200
    assert (text.decoded, backend.requests) == ([], [])


async def test_a_prompt_longer_than_the_context_is_told_in_the_words_of_each_api(asker: Asker) -> None:
    for answer, param in (
        (await asker.complete(prompt=LONG), "prompt"),
        (await asker.chat(messages=[{"role": "user", "content": LONG}]), "messages"),
    ):
        assert (answer.status, answer.error["param"]) == (400, param)
        assert answer.error["code"] == "context_length_exceeded"


async def test_a_large_answer_is_spelt_beside_the_others(
    asker: Asker, text: WatchedText, backend: ScriptedBackend
) -> None:
    backend.script = saying("x" * (SMALL_ANSWER_TOKENS + 1), finish="length", logprobs=True)
    assert (await asker.chat(logprobs=True)).status == 200
    assert text.spelling not in (None, threading.main_thread())
    backend.script = saying("short", logprobs=True)
    assert (await asker.chat(logprobs=True)).status == 200
    assert text.spelling is threading.main_thread()


async def test_alternatives_make_an_answer_large_too(asker: Asker, text: WatchedText, backend: ScriptedBackend) -> None:
    tops = TokenLogprobs(Logprob(97, -0.5), tuple(Logprob(97, -0.5) for _ in range(20)))
    backend.script = lambda _: [Delta(0, 97, "a", tops, "stop" if at == 15 else None) for at in range(16)]
    assert (await asker.chat(logprobs=True, top_logprobs=20)).status == 200
    assert text.spelling not in (None, threading.main_thread())


async def test_others_are_served_while_a_large_answer_is_spelt(
    journal: Journal, guard: Guard, backend: ScriptedBackend
) -> None:
    began, may_end = threading.Event(), threading.Event()

    class SlowText(ByteText):
        def token_text(self, token: int) -> str:
            began.set()
            assert may_end.wait(SECONDS)
            return super().token_text(token)

    app = openai_app(backend, SlowText(), PlainTemplate(), journal, guard, agent_id="agent-1")
    asker = Asker(app, {"authorization": f"Bearer {KEY}"})
    backend.script = saying("x" * (SMALL_ANSWER_TOKENS + 1), finish="length", logprobs=True)
    large = asker.call("/v1/completions", {"model": "tiny", "prompt": "a", "logprobs": 1})
    backend_says = saying("Hello")
    while not began.is_set():
        assert (await asker.get("/health")).status == 200
    backend.script = backend_says
    assert (await asker.complete()).status == 200
    assert not large.task.done()
    may_end.set()
    assert (await large.answered()).status == 200


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    )
)
def test_json_in_pieces_is_the_same_json(value: Any) -> None:
    assert "".join(spelt(value)) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{}] * 1_000},
        {"messages": [{"role": "user", "content": "x", **{f"more{at}": 1 for at in range(1_000)}}]},
        {"messages": [], **{f"more{at}": 1 for at in range(1_000)}},
        {"messages": [], "stop_token_ids": [-1] * 1_000},
        {"messages": [], "stream_options": {f"more{at}": 1 for at in range(1_000)}},
    ],
)
def test_of_a_thousand_mistakes_a_few_are_looked_at(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        ChatRequest.model_validate({"model": "tiny", **fields})
    assert caught.value.error_count() <= 4
