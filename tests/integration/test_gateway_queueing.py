"""Where engines are full, requests wait at the gateway: in turn, by what is held when their turn comes, and not in vain
for long. Real engines with one seat each, which a stream has.
"""

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from engine_agent.contracts.protocol import change_between
from engine_agent.gateway.standing import Standing
from tests.engines.processes import Engine, state_folder
from tests.gateway.snapshots import (
    FOREIGN,
    KEY,
    MODEL,
    Entries,
    engine_snapshot,
    gateway_snapshot,
    key,
    route,
    split,
    tenants,
)
from tests.integration.gateway_fleet import Fleet, Gateway, fleet_engine, told_as
from tests.integration.test_gateway import bearer, sample
from tests.integration.test_gateway_process import Process, joined_before
from tests.integration.test_gateway_process import gateway as gateway_process
from tests.support.waiting import wait_until

FULL = Standing(seats=1, in_flight=1)
AGENTS = ("agent-1", "agent-2")
PATIENCE_SECONDS = 60.0
ENDLESS = 8_000  # tokens: nobody waits for their end
HOUR_SECONDS = 3_600.0
WAITING, SEATED = "luminet_gateway_waiting_requests", "luminet_gateway_waiting_seconds_count"

Answer = Future[httpx.Response]


@dataclass
class Full:
    """A fleet without a seat that is free, and those who wait for one."""

    fleet: Fleet
    pool: ThreadPoolExecutor

    @property
    def gateway(self) -> Gateway:
        return self.fleet.gateway

    def come(self, who: str = KEY, **fields: Any) -> Answer:
        """And wait in line, behind whoever does already."""
        before = self.gateway.gate.waiting
        asked = self.pool.submit(complete, self.gateway.url, who, **fields)
        wait_until(lambda: self.gateway.gate.waiting > before or asked.done())
        assert not asked.done(), asked.result().text
        return asked

    def change(self, put: Entries | None = None, drop: tuple[str, ...] = ()) -> None:
        before = self.gateway.held.tables.snapshot
        self.gateway.apply(change_between(before, before.replaced(put=put or {}, drop=drop)))

    def sitting(self, who: str = FOREIGN) -> AbstractContextManager[None]:
        return sitting(self.gateway.url, who)


def asked(who: str, **fields: Any) -> dict[str, Any]:
    body = {"model": MODEL, "prompt": "Hello", "max_tokens": 2, "temperature": 0, **fields}
    return {"json": body, "headers": bearer(who), "timeout": PATIENCE_SECONDS}


def complete(url: str, who: str = KEY, **fields: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", **asked(who, **fields))


@contextmanager
def sitting(url: str, who: str = FOREIGN, tokens: int = ENDLESS) -> Iterator[None]:
    """A stream of that key's has a seat, until it leaves."""
    fields = asked(who, max_tokens=tokens, ignore_eos=True, stream=True)
    with httpx.stream("POST", f"{url}/v1/completions", **fields) as answer:
        assert answer.status_code == 200
        parts = answer.iter_bytes()  # which closes it when it goes itself
        assert next(parts)
        yield


@contextmanager
def full(fleet: Fleet) -> Iterator[Full]:
    with ThreadPoolExecutor(16) as pool:
        yield Full(fleet, pool)


@pytest.fixture(scope="module")
def both() -> Iterator[Fleet]:
    with ExitStack() as opened:
        engines = {agent: opened.enter_context(fleet_engine(agent, "--max-running", "1")) for agent in AGENTS}
        running = Gateway()
        running.start()
        opened.callback(running.stop)
        yield Fleet(running, engines)


@pytest.fixture
def one(both: Fleet) -> Iterator[Full]:
    """The other engine takes no requests."""
    both.hold(states={"agent-2": "draining"})
    yield from seated(both, "agent-1")


@pytest.fixture
def two(both: Fleet) -> Iterator[Full]:
    both.hold()
    yield from seated(both, *AGENTS)


def seated(fleet: Fleet, *agents: str) -> Iterator[Full]:
    """Once the gateway knows how many seats there are."""
    wait_until(lambda: all(fleet.gateway.engines.standing(one).seats == 1 for one in agents))
    with full(fleet) as found:
        yield found
    fleet.until_idle()


def told(answer: Answer) -> tuple[int, str]:
    found = answer.result(PATIENCE_SECONDS)
    return found.status_code, found.json()["error"]["code"]


def agent_of(answer: Answer) -> str:
    found = answer.result(PATIENCE_SECONDS)
    assert found.status_code == 200, found.text
    return found.headers["x-luminet-agent"]


def organisations_admitted(engine: Engine) -> list[str]:
    """In the order in which their requests got a seat, by the engine's own journal."""
    boot = engine.admin("GET", "/stats").json["boot"]
    entries = engine.admin("GET", f"/journal?boot={boot}").json["entries"]
    return [entry["organisation"] for entry in entries if entry["type"] == "opened"]


# In turn


def test_two_organisations_are_served_in_turn_however_many_requests_one_of_them_has(one: Full) -> None:
    engine = one.fleet.engines["agent-1"]
    with one.sitting():
        before = len(organisations_admitted(engine))
        answers = [one.come(KEY) for _ in range(6)] + [one.come(FOREIGN) for _ in range(3)]
        assert one.gateway.gate.waiting == 9
    assert {agent_of(answer) for answer in answers} == {"agent-1"}
    seated = organisations_admitted(engine)[before:]
    assert sorted(seated[:6]) == ["acme"] * 3 + ["globex"] * 3
    assert seated[6:] == ["acme"] * 3
    assert one.gateway.gate.waiting == 0


def test_what_waits_is_told_on_metrics_and_for_how_long_when_it_is_over(one: Full) -> None:
    url = one.gateway.url
    before = sample(url, SEATED, outcome="seated")
    with one.sitting():
        answer = one.come()
        assert sample(url, WAITING) == 1
    assert agent_of(answer) == "agent-1"
    assert (sample(url, WAITING), sample(url, SEATED, outcome="seated")) == (0, before + 1)


def test_a_request_that_found_no_room_in_time_is_told_that_engines_are_full() -> None:
    running = Gateway(queue_seconds=0.2)
    running.engines.standing = lambda agent: FULL  # type: ignore[method-assign]
    running.start()
    try:
        running.apply(gateway_snapshot(tenants(), route("agent-1")))
        answer = complete(running.url)
        assert sample(running.url, SEATED, outcome="overloaded") == 1
    finally:
        running.stop()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")
    assert answer.headers["retry-after"]
    assert running.gate.waiting == 0


# By what is held when its turn comes


def revoked(full: Full) -> None:
    full.change(drop=(f"key/{KEY}",))


def suspended(full: Full) -> None:
    entry = full.gateway.held.tables.snapshot.entries["org/1"]
    full.change({"org/1": {**entry, "state": "suspended"}})


@pytest.mark.parametrize(("deed", "expected"), [(revoked, (401, "invalid_api_key")), (suspended, (403, "suspended"))])
def test_who_loses_the_right_to_ask_waits_no_longer(
    one: Full, deed: Callable[[Full], None], expected: tuple[int, str]
) -> None:
    with one.sitting():
        answers = [one.come() for _ in range(3)]
        others = one.come(FOREIGN)
        deed(one)
        assert [told(answer) for answer in answers] == [expected] * 3
        assert one.gateway.engines.in_flight == 1  # the seat is taken still: they were told without one
        assert one.gateway.gate.waiting == 1
    assert agent_of(others) == "agent-1"


def test_a_key_that_expires_while_its_request_waits_is_refused_though_nobody_said_anything(one: Full) -> None:
    one.change(key("lk_ending", "1", expires_at=in_an_hour()))
    held = one.gateway.held.tables
    with one.sitting():
        answer = one.come("lk_ending")
        one.gateway.ahead_seconds = 2 * HOUR_SECONDS
        try:
            assert told(answer) == (401, "invalid_api_key")
        finally:
            one.gateway.ahead_seconds = 0.0
        assert one.gateway.held.tables is held
        assert one.gateway.engines.in_flight == 1


def in_an_hour() -> str:
    return datetime.fromtimestamp(time.time() + HOUR_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_request_that_waits_goes_to_no_engine_that_takes_no_more(two: Full) -> None:
    two.change(split(["agent-1"], 1.0))  # so that it is asked first
    with ExitStack() as other:
        with two.sitting():
            other.enter_context(two.sitting())
            answer = two.come()
            drained = {**two.gateway.held.tables.snapshot.entries["route/agent-1"], "state": "draining"}
            two.change({"route/agent-1": drained})
        wait_until(lambda: two.gateway.engines.standing("agent-1").in_flight == 0)
        wait_until(lambda: two.fleet.engines["agent-1"].admin("GET", "/stats").json["running"] == 0)
        assert (two.gateway.gate.waiting, answer.done()) == (1, False)
    assert agent_of(answer) == "agent-2"


def test_a_request_that_waits_goes_to_an_engine_that_came_meanwhile(two: Full) -> None:
    there = {"route/agent-2": two.gateway.held.tables.snapshot.entries["route/agent-2"]}
    two.change(drop=("route/agent-2",))
    with two.sitting():
        answer = two.come()
        two.change(there)
        assert agent_of(answer) == "agent-2"


def test_where_the_last_engine_takes_no_more_whoever_waits_for_it_is_told_at_once(one: Full) -> None:
    with one.sitting():
        answer = one.come()
        drained = {**one.gateway.held.tables.snapshot.entries["route/agent-1"], "state": "draining"}
        one.change({"route/agent-1": drained})
        assert told(answer) == (503, "no_engine")
        assert one.gateway.engines.in_flight == 1


# While the gateway drains


def test_a_gateway_that_is_drained_lets_nobody_in_and_serves_who_waits(one: Full) -> None:
    gateway = one.gateway
    with one.sitting():
        answer = one.come()
        assert gateway.do(gateway.holder.operate("drain", {})) == {"ok": True, "left": 2}
        try:
            late = complete(gateway.url)
            assert (late.status_code, late.json()["error"]["code"]) == (503, "draining")
            assert gateway.gate.waiting == 1
        finally:
            gateway.do(gateway.holder.operate("resume", {}))
    assert agent_of(answer) == "agent-1"


@contextmanager
def process_with_one_waiting(engine: Engine, *arguments: str, tokens: int) -> Iterator[tuple[Process, Answer, Answer]]:
    """One whose stream has the only seat for so many tokens, and one that waits for it."""
    told = engine_snapshot(tenants())
    assert engine.admin("POST", "/apply", told_as(told)).status == 200
    with ExitStack() as opened:
        home = opened.enter_context(state_folder())
        home.mkdir()
        joined_before(home, gateway_snapshot(tenants(), route("agent-1", f"http://127.0.0.1:{engine.port}")))
        options = ("--home", str(home), "--canary-seconds", "0", *arguments)
        running = opened.enter_context(gateway_process(*options))
        pool = opened.enter_context(ThreadPoolExecutor(2))
        wait_until(lambda: sample(running.url, "luminet_gateway_cache_known") == 1)
        seat = pool.submit(complete, running.url, FOREIGN, max_tokens=tokens, ignore_eos=True)
        wait_until(lambda: sample(running.url, "luminet_gateway_running_requests") == 1)
        waiting = pool.submit(complete, running.url)
        wait_until(lambda: sample(running.url, WAITING) == 1)
        yield running, seat, waiting


def test_a_gateway_that_is_stopped_finishes_what_waits_too(both: Fleet) -> None:
    with process_with_one_waiting(both.engines["agent-1"], "--drain-seconds", "120", tokens=1_500) as (
        running,
        seat,
        waiting,
    ):
        running.process.send_signal(signal.SIGTERM)
        assert agent_of(seat) == agent_of(waiting) == "agent-1"
        assert running.process.wait(PATIENCE_SECONDS) == 0


def test_who_waits_still_when_a_gateways_time_is_over_is_told_to_ask_elsewhere(both: Fleet) -> None:
    with process_with_one_waiting(both.engines["agent-1"], "--drain-seconds", "0.5", tokens=ENDLESS) as found:
        running, seat, waiting = found
        running.process.send_signal(signal.SIGTERM)
        assert told(waiting) == (503, "draining")
        assert waiting.result().headers["retry-after"]
        assert told(seat) == (503, "gateway_stopped")  # it ran, and no header of it had left
        assert running.process.wait(PATIENCE_SECONDS) == 0
