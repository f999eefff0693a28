"""What rows G1 and G2 measure with: an engine that answers at once, a load generator, chats that grow."""

import json
from collections.abc import Iterator

import httpx
import pytest

from engine_agent.prompts.bundle import bundle_name, bundle_read
from tests.bench.fronts import instant_engine
from tests.bench.growing import Chats, Shape
from tests.bench.hammer import BadAnswer, Door, hammer, in_turn, run
from tests.gateway.snapshots import MODEL
from tests.servers.misbehaving import misbehaving

BODIES = [json.dumps({"model": MODEL, "messages": [], "n": number}).encode() for number in range(3)]


@pytest.fixture(scope="module")
def instant() -> Iterator[Door]:
    with instant_engine() as door:
        yield door


def test_an_instant_engine_tells_a_gateway_all_that_it_asks(instant: Door) -> None:
    with httpx.Client(base_url=instant.url, timeout=30) as client:
        about = client.get("/gateway/about").json()
        bundle = client.get(f"/gateway/bundles/{about['bundle']}").content
        assert bundle_name(bundle) == about["bundle"]
        assert bundle_read(bundle).vocab_size > 0
        assert client.get("/health").status_code == 200
        assert client.get("/nothing").status_code == 404
        answer = client.post("/v1/chat/completions", json={"model": MODEL})
        assert answer.json()["object"] == "chat.completion"
        assert answer.headers["x-luminet-prompt-tokens"] == "12"


def test_so_many_clients_each_ask_again_when_they_are_answered(instant: Door) -> None:
    taken = run(hammer(instant, BODIES, together=4, seconds=0.2))
    assert len(taken) >= 4
    assert all(0 < one < 30 for one in taken)


def test_each_body_goes_to_each_door(instant: Door) -> None:
    with misbehaving() as other:
        seen = Door(other.url, {"authorization": "Bearer x"})
        taken = run(in_turn([instant, seen], BODIES))
        assert [len(one) for one in taken] == [len(BODIES)] * 2
        assert [body for *_, body in other.seen] == BODIES
        assert {headers["authorization"] for _, _, headers, _ in other.seen} == {"Bearer x"}


def test_what_is_no_answer_is_not_measured() -> None:
    with misbehaving() as other:
        other.replies = [(500, {}, b"no")]
        with pytest.raises(BadAnswer, match="500: b'no'"):
            run(in_turn([Door(other.url, {})], BODIES))
        other.replies = [None]
        with pytest.raises(BadAnswer, match="the connection ended"):
            run(in_turn([Door(other.url, {})], BODIES))


def test_a_chat_grows_by_little_and_says_how_long_it_was(instant: Door) -> None:
    chats = Chats(Shape("short", words=5, messages=100), [instant])
    assert [len(one) for one in chats.cold()] == [1]
    assert [len(one) for one in chats.growing(3)] == [3]
    (fact,) = chats.facts()
    assert fact.startswith("short: ")
    assert chats._seen > 0.95
    assert chats._longest.startswith(chats._shortest[: len(chats._shortest) - 40])
