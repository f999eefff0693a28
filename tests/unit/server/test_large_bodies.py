"""What takes long to understand is understood in a thread, and others are served meanwhile."""

import threading
from dataclasses import replace

from engine_agent.journal.journal import Journal
from engine_agent.server.app import openai_app
from engine_agent.server.face import SMALL_BODY_BYTES
from engine_agent.server.guard import Guard
from engine_agent.server.limits import BESIDE_PROMPT_BYTES, LEAST_BODY_BYTES, Limits
from tests.unit.server.asking import SECONDS, Asker
from tests.unit.server.scripted import CARD, ByteText, PlainTemplate, ScriptedBackend


class SlowText(ByteText):
    """Takes its time for what is large."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        if len(text) > SMALL_BODY_BYTES:
            self.began.set()
            assert self.may_end.wait(SECONDS)
        return super().encode(text[:64])


class LongestToken(ByteText):
    def token_bytes(self, token: int) -> bytes:
        return b" " * 128


async def test_a_long_prompt_keeps_nobody_waiting(backend: ScriptedBackend, journal: Journal, guard: Guard) -> None:
    text = SlowText()
    app = openai_app(backend, text, PlainTemplate(), journal, guard, agent_id="agent-1")
    asker = Asker(app, {"authorization": "Bearer sk-test"})
    long = asker.call("/v1/completions", {"model": "tiny", "prompt": "x" * 10_000})
    while not text.began.is_set():
        assert (await asker.complete()).status == 200
    assert not long.task.done()
    text.may_end.set()
    assert (await long.answered()).status == 200


def test_the_longest_prompt_the_model_can_serve_fits_into_a_body() -> None:
    """Of the longest tokens there are, and every byte of it written as an escape."""
    limits = Limits.of(replace(CARD, context_tokens=32_768), LongestToken())
    assert limits.body_bytes == 32_768 * 128 * len(r"\u0020") + BESIDE_PROMPT_BYTES
    assert limits.held_bytes >= 2 * limits.body_bytes


def test_no_limit_is_so_small_that_a_short_prompt_would_notice() -> None:
    assert Limits.of(CARD, ByteText()).body_bytes == LEAST_BODY_BYTES
