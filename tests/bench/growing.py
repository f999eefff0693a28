"""Chats of 50,000 to 100,000 tokens: asked for the first time, and then again and again, each time a little longer."""

import itertools
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine_agent.prompts.bundle import Bundle
from tests.bench.hammer import Door, in_turn, run
from tests.engines.processes import DEMO
from tests.engines.rendering import chat_text
from tests.gateway.snapshots import MODEL

TEXT = """the sea was calm and a ship sailed on through night while nobody aboard knew where they had come from or what
lay before them under skies without any moon until morning came with wind rain birds and land"""
ROLES = ("user", "assistant")
REST_SECONDS = 3.0  # in which an engine would compute the prompt, and the gateway makes up for what it left out
TURN_SECONDS = 0.1  # in which an engine would write its answer, and somebody the next question
Taken = list[list[float]]  # seconds, by door


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    words: int  # in a message
    messages: int  # in a chat that begins


class Chats:
    """One after the other, none like another. Every body goes to every door."""

    def __init__(self, shape: Shape, doors: Sequence[Door]) -> None:
        self._shape, self._doors = shape, doors
        self._random = random.Random(shape.name)
        self._bundle = Bundle.from_folder(DEMO)
        self._words = TEXT.split()
        self._roles = itertools.cycle(ROLES)
        self._shortest, self._longest, self._seen = b"", b"", 1.0

    def cold(self) -> Taken:
        """A chat that was never seen."""
        body = _body(self._messages(self._shape.messages))
        return run(in_turn(self._doors, [body]))

    def growing(self, steps: int) -> Taken:
        """One that was seen, and grows by a question and an answer at each step."""
        told = self._messages(self._shape.messages)
        first = _body(told)
        run(in_turn(self._doors, [first]))
        time.sleep(REST_SECONDS)
        bodies = []
        for _ in range(steps):
            told = [*told, *self._messages(2)]
            bodies.append(_body(told))
        self._note([first, *bodies])
        return run(in_turn(self._doors, bodies, pause=TURN_SECONDS))

    def facts(self) -> Iterator[str]:
        """How long these prompts were, counted by the model's own tokenizer."""
        tokens = [len(self._tokens(body)) for body in (self._shortest, self._longest)]
        yield (
            f"{self._shape.name}: {tokens[0]:,} to {tokens[1]:,} tokens in {len(self._longest):,} bytes at most, of "
            f"which at least {100 * self._seen:.1f} % had been seen"
        )

    def _note(self, bodies: Sequence[bytes]) -> None:
        self._shortest, self._longest = bodies[1], bodies[-1]
        self._seen = min(self._seen, *(len(one) / len(two) for one, two in itertools.pairwise(bodies)))

    def _messages(self, count: int) -> list[dict[str, str]]:
        return [{"role": next(self._roles), "content": self._text()} for _ in range(count)]

    def _text(self) -> str:
        return " ".join(self._random.choices(self._words, k=self._shape.words))

    def _tokens(self, body: bytes) -> list[int]:
        told: dict[str, Any] = json.loads(body)
        return self._bundle.encode(chat_text(self._bundle.template, told).text, add_special=False)


def _body(messages: Sequence[dict[str, str]]) -> bytes:
    return json.dumps({"model": MODEL, "messages": messages, "max_tokens": 4}).encode()
