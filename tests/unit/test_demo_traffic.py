"""The demo's traffic by itself: what it asks, when, and what it does while something is wrong. Nobody waits here."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import cast

import pytest

from controlplane.demo.chats import (
    HELP_DESK,
    MOST_TOKENS,
    RULES,
    Chats,
    Customer,
    Flood,
    Messages,
    NameFirst,
    customers,
)
from controlplane.demo.organisations import ORGANISATIONS
from controlplane.demo.traffic import LOOK_SECONDS, MOST_PAUSE_SECONDS, USER_AGENT, Gateway, NotAnswered, Traffic
from tests.servers.misbehaving import misbehaving
from tests.support.ports import free_port

KEYS = {"acme": "key-a", "globex": "key-g", "initech": "key-i"}
MINUTE = 60.0


@dataclass
class World:
    """A gateway that answers or does not, a switch, and a clock that goes when somebody sleeps."""

    now: float = 0.0
    is_on: bool = True
    is_there: bool = True
    keys: dict[str, str] = field(default_factory=lambda: dict(KEYS))
    asked: list[tuple[float, str, str, Messages]] = field(default_factory=list)
    tried: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def chat(self, customer: Customer, key: str, messages: Messages) -> str:
        self.tried.append(self.now)
        if not self.is_there:
            raise NotAnswered("the gateway does not answer: refused")
        self.asked.append((self.now, customer.name, key, [*messages]))
        return "It is a function."

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= LOOK_SECONDS, "whoever switches it off is heeded soon"
        self.now += seconds

    def traffic(self) -> Traffic:
        return Traffic(
            cast(Gateway, self),
            customers(seed=1),
            is_on=lambda: self.is_on,
            keys=lambda: self.keys,
            tell=self.told.append,
            clock=lambda: self.now,
            sleep=self.sleep,
        )

    def run(self, traffic: Traffic, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            traffic.step()


def test_everybody_asks_at_their_own_rate_with_their_own_key() -> None:
    world = World()
    world.run(world.traffic(), 5 * MINUTE)
    names = [name for _, name, _, _ in world.asked]
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    assert counts == {
        "shared system prompt": pytest.approx(60, abs=1),
        "multi-turn chats": pytest.approx(43, abs=1),
        "a user's name first": pytest.approx(28, abs=1),
        "a flooder": 25,
    }
    keys = {name: key for _, name, key, _ in world.asked}
    assert keys == {
        "shared system prompt": "key-a",
        "multi-turn chats": "key-g",
        "a user's name first": "key-a",
        "a flooder": "key-i",
    }
    assert set(world.told) == {"sends"}


def test_every_customer_is_one_of_the_demo_and_has_that_namespace() -> None:
    there = {(one.slug, space.slug) for one in ORGANISATIONS for space in one.namespaces}
    there |= {(one.slug, "default") for one in ORGANISATIONS}
    wanted = [(one.organisation, one.namespace) for one in customers(seed=1)]
    assert set(wanted) <= there
    assert len(set(wanted)) == len(wanted), "each has one of its own"


def test_a_chat_goes_on_below_one_beginning_and_begins_anew_after_its_turns() -> None:
    chats, asked = Chats(HELP_DESK, 2, Random(1)), []
    for _ in range(3):
        (messages,) = chats.asks()
        asked.append([*messages])
        chats.answered("It is a function.")
    assert [len(messages) for messages in asked] == [2, 4, 2]
    assert asked[1][: len(asked[0])] == asked[0]
    assert {messages[0]["content"] for messages in asked} == {HELP_DESK}


def test_a_chat_that_broke_off_is_not_gone_on_with() -> None:
    chats = Chats(HELP_DESK, 8, Random(1))
    chats.asks()
    chats.failed()
    (messages,) = chats.asks()
    assert [one["role"] for one in messages] == ["system", "user"]


def test_where_a_name_stands_first_no_two_prompts_begin_alike() -> None:
    ways = NameFirst(Random(1))
    systems = [ways.asks()[0][0]["content"] for _ in range(50)]
    assert all(one.endswith(RULES) for one in systems)
    assert len({one[:40] for one in systems}) == 50


def test_a_flood_is_never_the_same_twice() -> None:
    flood = Flood(5, 60, Random(1))
    asked = [messages[0]["content"] for _ in range(20) for messages in flood.asks()]
    assert len({one[:60] for one in asked}) == len(asked) == 100


def test_switched_off_it_asks_nothing_and_switched_on_it_goes_on() -> None:
    world = World()
    traffic = world.traffic()
    world.run(traffic, MINUTE)
    world.is_on, before = False, len(world.asked)
    world.run(traffic, 5 * MINUTE)
    assert len(world.asked) == before
    assert world.told[-1] == "paused"
    world.is_on = True
    world.run(traffic, MINUTE)
    assert len(world.asked) > before


def test_switched_off_between_two_requests_it_is_paused_within_seconds() -> None:
    world = World()
    traffic = world.traffic()
    traffic.step()
    world.is_on, off_at = False, world.now
    traffic.step()
    assert (world.told[-1], world.now - off_at <= LOOK_SECONDS) == ("paused", True)


def test_while_the_gateway_is_away_it_asks_less_and_less_often_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(is_there=False)
    traffic = world.traffic()
    with caplog.at_level(logging.INFO, "luminet.demo_traffic"):
        world.run(traffic, 60 * MINUTE)
    pauses = [after - before for before, after in zip(world.tried, world.tried[1:], strict=False)]
    assert pauses[:3] == pytest.approx([1, 2, 4])
    assert max(pauses) == pytest.approx(MOST_PAUSE_SECONDS)
    assert len(caplog.records) == 1
    assert world.told[-1] == "waits"
    world.is_there = True
    with caplog.at_level(logging.INFO, "luminet.demo_traffic"):
        world.run(traffic, 2 * MINUTE)
    assert world.asked
    assert [record.getMessage() for record in caplog.records[1:]] == ["demo traffic sends"]


def test_without_a_key_it_waits_and_who_has_none_is_left_out() -> None:
    world = World(keys={})
    traffic = world.traffic()
    world.run(traffic, MINUTE)
    assert (world.asked, world.told[-1]) == ([], "waits")
    world.keys["initech"] = "key-i"
    world.run(traffic, 3 * MINUTE)
    assert {name for _, name, _, _ in world.asked} == {"a flooder"}


# Over the wire

CUSTOMER = customers(seed=1)[0]
ANSWER = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Yes."}}]}).encode()
REFUSAL = json.dumps({"error": {"message": "this key is not valid", "type": "invalid_request_error"}}).encode()


def test_a_request_is_a_clients_like_any_other_and_says_whose_it_is() -> None:
    with misbehaving() as server:
        server.replies = [(200, {}, ANSWER)]
        gateway = Gateway(server.url)
        assert [gateway.chat(CUSTOMER, "lmk_x", [{"role": "user", "content": "Hi"}]) for _ in range(2)] == ["Yes."] * 2
        gateway.close()
        assert server.connections == 1
        method, path, headers, body = server.seen[0]
    named: Mapping[str, str] = {name.lower(): value for name, value in headers.items()}
    assert (method, path, named["authorization"]) == ("POST", "/v1/chat/completions", "Bearer lmk_x")
    assert (named["user-agent"], named["x-luminet-namespace"]) == (USER_AGENT, "support-bot")
    assert json.loads(body)["max_tokens"] == MOST_TOKENS


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (401, REFUSAL, "401: this key is not valid"),
        (503, b"<html>", "503: no JSON that we know"),
        (200, b"{}", "200: no JSON that we know"),
        (200, b"[]", "200: no JSON that we know"),
    ],
)
def test_what_is_no_answer_is_told_with_its_reason(status: int, body: bytes, why: str) -> None:
    with misbehaving() as server:
        server.replies = [(status, {}, body)]
        gateway = Gateway(server.url)
        with pytest.raises(NotAnswered, match=why):
            gateway.chat(CUSTOMER, "lmk_x", [])
        gateway.close()


def test_a_gateway_that_is_not_there_or_hangs_up_is_asked_on_a_new_connection() -> None:
    with pytest.raises(NotAnswered, match="does not answer"):
        Gateway(f"http://127.0.0.1:{free_port()}").chat(CUSTOMER, "lmk_x", [])
    with misbehaving() as server:
        server.replies = [None, (200, {}, ANSWER)]
        gateway = Gateway(server.url)
        with pytest.raises(NotAnswered):
            gateway.chat(CUSTOMER, "lmk_x", [])
        assert gateway.chat(CUSTOMER, "lmk_x", []) == "Yes."
        gateway.close()
