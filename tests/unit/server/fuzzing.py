"""Random bodies: mostly right ones with something wrong in them, and some that are not even JSON.

python -m tests.unit.server.fuzzing --bodies 20000 --seed 1
"""

import argparse
import asyncio
import copy
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from engine_agent.journal.journal import Journal
from engine_agent.server.app import openai_app
from engine_agent.server.guard import KeyGuard
from engine_agent.server.schemas import ChatRequest, CompletionRequest
from engine_agent.server.unsupported import CHAT, COMPLETIONS
from tests.unit.server.asking import Answered, Asker

PATHS = ("/v1/chat/completions", "/v1/completions")
FIELDS = {
    PATHS[0]: sorted({*ChatRequest.model_fields, *CHAT, "unheard_of"}),
    PATHS[1]: sorted({*CompletionRequest.model_fields, *COMPLETIONS, "unheard_of"}),
}
EXPECTED = frozenset((200, 400, 404, 413))
SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, -1, 3, 16, 129, 2**31, 2**63, -(2**63), 10**40, 0.0, 0.5, 1.5, -0.5, 1e308, -1e-320),
    *("", "a", "none", "auto", "text", "x" * 2_000, "\0", "é", "😀", "\ud800", "\u2028", "1", "-1", "NaN", "{{ 7*7 }}"),
    *([], {}, [[]], [None], {"": None}, {"type": "text"}, {"type": "text", "text": "x"}, {"1": 5}, {"1": 1e9}),
)
RAW = (
    b"",
    b"null",
    b"[]",
    b"{",
    b'{"model":NaN}',
    b"\xff\xfe",
    b"[" * 5_000,
    b'{"a":1,"a":1}',
    b'{"x":' + b"9" * 5_000 + b"}",
)


def random_bodies(seed: int, *, model: str = "tiny") -> Iterator[tuple[str, bytes]]:
    chance = random.Random(seed)
    while True:
        path = chance.choice(PATHS)
        document = _right(chance, path, model)
        for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
            _spoil(chance, document, FIELDS[path])
        yield path, _written(chance, document)


def _right(chance: random.Random, path: str, model: str) -> dict[str, Any]:
    document: dict[str, Any] = {"model": model, "max_tokens": chance.randint(1, 3), "stream": chance.random() < 0.3}
    if path == PATHS[1]:
        return document | {"prompt": chance.choice(["Hi", ["a", "b"], [1, 2], [[1], [2, 3]]])}
    roles = chance.choices(("system", "user", "assistant", "tool", "developer"), k=chance.randint(1, 3))
    return document | {"messages": [{"role": role, "content": chance.choice(("Hi", ""))} for role in roles]}


def _spoil(chance: random.Random, document: dict[str, Any], fields: list[str]) -> None:
    holder: Any = document
    while chance.random() < 0.4:  # go deeper
        inside = [
            one
            for one in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(one, dict | list) and one
        ]
        if not inside:
            break
        holder = chance.choice(inside)
    if isinstance(holder, list):
        holder[chance.randrange(len(holder))] = _value(chance)
    elif holder is not document and holder and chance.random() < 0.7:
        holder[chance.choice(list(holder))] = _value(chance)
    else:
        holder[chance.choice(fields)] = _value(chance)


def _value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random()
    if kind < 0.8 or depth > 3:
        return copy.deepcopy(chance.choice(SCALARS))  # or spoiling one would spoil all that follow
    if kind < 0.9:
        return [_value(chance, depth + 1) for _ in range(chance.randint(0, 4))]
    return {str(chance.choice(SCALARS)): _value(chance, depth + 1) for _ in range(chance.randint(0, 4))}


def _written(chance: random.Random, document: dict[str, Any]) -> bytes:
    if chance.random() < 0.02:
        return chance.choice(RAW)
    body = bytearray(json.dumps(document).encode())
    if chance.random() < 0.1:  # a byte or two of it are wrong
        for _ in range(chance.randint(1, 3)):
            body[chance.randrange(len(body))] = chance.randrange(256)
    return bytes(body[: chance.randrange(len(body))]) if chance.random() < 0.02 else bytes(body)


def check(path: str, body: bytes, answer: Answered) -> None:
    """It is an answer, or it says in OpenAI's shape what is wrong."""
    about = f"{path} {body[:500]!r} -> {answer.status} {answer.body[:300]!r}"
    assert answer.status in EXPECTED, about
    if answer.status != 200:
        assert answer.error.keys() == {"message", "type", "param", "code"}, about
        assert answer.error["type"] == "invalid_request_error", about
        assert answer.error["code"], about
        assert answer.error["message"], about
    elif answer.headers["content-type"].startswith("text/event-stream"):
        assert answer.events[-1] == "[DONE]", about
    else:
        assert answer.document["choices"], about


async def fuzz(asker: Asker, *, bodies: int, seed: int, model: str = "tiny") -> Counter[int]:
    """How many answers had which status. Raises AssertionError naming the body."""
    statuses: Counter[int] = Counter()
    for _, (path, body) in zip(range(bodies), random_bodies(seed, model=model), strict=False):
        answer = await asker.post(path, body)
        check(path, body, answer)
        statuses[answer.status] += 1
    return statuses


async def _by_hand(bodies: int, seed: int) -> None:
    from tests.unit.server.conftest import LIMITS
    from tests.unit.server.identities import KEY, LOCAL
    from tests.unit.server.scripted import ByteText, PlainTemplate, ScriptedBackend

    guard = KeyGuard(sha256(KEY.encode()).digest(), LOCAL)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.open(Path(folder), "boot-1", most_bytes=2**24, drops_oldest=True)
        app = openai_app(
            ScriptedBackend(), ByteText(), PlainTemplate(), journal, guard, agent_id="agent-1", limits=LIMITS
        )
        statuses = await fuzz(Asker(app, {"authorization": f"Bearer {KEY}"}), bodies=bodies, seed=seed)
        journal.close()
    print(f"{bodies:,} bodies, seed {seed}: {dict(sorted(statuses.items()))}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bodies", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    asyncio.run(_by_hand(told.bodies, told.seed))
