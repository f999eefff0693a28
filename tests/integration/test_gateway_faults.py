"""What a gateway does when engines hang, crawl, die or are all away, and when it is not the only one.

Each test sees that its fault happened.
"""

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import psutil
import pytest

from engine_agent.gateway import engines as lookout
from engine_agent.gateway import silence
from engine_agent.gateway.health import IN_A_ROW
from tests.engines.processes import Engine, state_folder
from tests.gateway.snapshots import KEY, MODEL, engine_snapshot, gateway_snapshot, route, split, tenants
from tests.integration.gateway_fleet import Fleet, Gateway, fleet_engine, gateway, told_as
from tests.integration.test_gateway_misbehaving import behind, complete, good, retries, silent, told
from tests.integration.test_gateway_process import gateway as gateway_process
from tests.integration.test_gateway_process import joined_before
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.unit.server.asking import Answered

AGENTS = ("agent-1", "agent-2")
UNREACHABLE = 'luminet_sidecar_sends_total{outcome="away"}'
LONG = {"max_tokens": 1_500, "ignore_eos": True}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("MOST_LOOK_SECONDS", 1.0), ("HANGS_SECONDS", 0.5)):
        monkeypatch.setattr(lookout, name, seconds)
    monkeypatch.setattr(silence, "SILENT_SECONDS", 3.0)


@pytest.fixture(scope="module")
def engines() -> Iterator[Mapping[str, Engine]]:
    """For tests after which they are as they were before; the others start, and kill, their own."""
    with ExitStack() as opened:
        yield {agent: opened.enter_context(fleet_engine(agent)) for agent in AGENTS}


@pytest.fixture
def running(engines: Mapping[str, Engine]) -> Iterator[Fleet]:
    """A gateway that knows nothing yet of how these engines are."""
    with gateway() as before:
        found = Fleet(before, engines)
        found.hold()
        yield found
        wait_until(lambda: found.running() == 0)


@contextmanager
def stopped(engine: Engine) -> Iterator[None]:
    """It hangs, as far as anybody can see."""
    engine.process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: psutil.Process(engine.process.pid).status() == psutil.STATUS_STOPPED)
        yield
    finally:
        engine.process.send_signal(signal.SIGCONT)


@contextmanager
def crawling(engine: Engine) -> Iterator[None]:
    """It runs a thirtieth of the time."""
    is_over = threading.Event()

    def crawl() -> None:
        while not is_over.wait(0.02):
            engine.process.send_signal(signal.SIGSTOP)
            time.sleep(0.6)
            engine.process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=crawl)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def agent_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return answer.headers["x-luminet-agent"]


def asked_for(running: Gateway | Any, **fields: Any) -> dict[str, Any]:
    return {"url": f"{running.url}/v1/completions", "json": {"model": MODEL, "prompt": "Hello", **fields}}


def logged_in() -> dict[str, str]:
    return {"authorization": f"Bearer {KEY}"}


def events(text: bytes) -> list[Any]:
    return Answered(200, {}, text).events


def first_to(running: Fleet, agent: str) -> None:
    running.hold(split([agent], 1.0))


# Engines that hang


def test_a_stream_of_an_engine_that_hangs_ends_with_an_error_and_others_are_asked_meanwhile(
    hasty: None, running: Fleet
) -> None:
    with httpx.Client(headers=logged_in(), timeout=60) as http:
        first_to(running, "agent-1")
        with http.stream("POST", **asked_for(running.gateway, stream=True, **LONG)) as answer:
            assert answer.headers["x-luminet-agent"] == "agent-1"
            parts = answer.iter_bytes()
            text = next(parts)
            with stopped(running.engines["agent-1"]):
                wait_until(lambda: not running.gateway.engines.standing("agent-1").is_wanted)
                assert {agent_of(complete(running.gateway)) for _ in range(4)} == {"agent-2"}
                text += b"".join(parts)
        assert events(text)[-1]["error"]["code"] == "engine_lost"
        assert all("choices" in one for one in events(text)[:-1])
        wait_until(lambda: running.gateway.engines.standing("agent-1").is_wanted)  # it goes on, and is asked again
        wait_until(lambda: agent_of(complete(running.gateway)) == "agent-1")


def test_a_request_that_waits_for_an_engine_that_hangs_is_answered_by_another(hasty: None, running: Fleet) -> None:
    with ThreadPoolExecutor(1) as pool:
        first_to(running, "agent-1")
        wait_until(lambda: running.gateway.engines.standing("agent-1").look_seconds > 0)
        with stopped(running.engines["agent-1"]):
            asked = pool.submit(complete, running.gateway)
            wait_until(lambda: running.gateway.engines.standing("agent-1").in_flight == 1)
            assert agent_of(asked.result()) == "agent-2"


def test_an_engine_that_crawls_gets_little(running: Fleet) -> None:
    standing = running.gateway.engines.standing
    assert set(Counter(agent_of(complete(running.gateway, prompt=f"{k}")) for k in range(8))) == set(AGENTS)
    with crawling(running.engines["agent-1"]):
        wait_until(lambda: standing("agent-1").look_seconds > 0.3)
        seen = Counter(agent_of(complete(running.gateway, prompt=f"{k}", max_tokens=1)) for k in range(20))
    assert seen["agent-2"] >= 15


# Engines that die


def test_where_all_engines_are_down_it_says_so_and_serves_when_one_is_back() -> None:
    port = free_port()
    with gateway() as running:
        with ExitStack() as opened:
            both = [opened.enter_context(fleet_engine("agent-1", "--port", str(port)))]
            both.append(opened.enter_context(fleet_engine("agent-2")))
            for one in both:
                assert one.admin("POST", "/apply", told_as(engine_snapshot(tenants()))).status == 200
            routes = [route(agent, f"http://127.0.0.1:{one.port}") for agent, one in zip(AGENTS, both, strict=True)]
            running.apply(gateway_snapshot(tenants(), *routes))
            wait_until(running.heard)
            assert complete(running).status_code == 200
            for one in both:
                one.process.kill()
                one.process.wait()
        answers = [complete(running) for _ in range(6)]
        assert {told(one) for one in answers} <= {(503, "no_engine"), (503, "engine_lost")}
        assert all(int(one.headers["retry-after"]) > 0 for one in answers)
        assert retries(running) > 0
        wait_until(lambda: not running.heard())  # what they held is forgotten with them
        with fleet_engine("agent-1", "--port", str(port)) as again:
            assert again.admin("POST", "/apply", told_as(engine_snapshot(tenants()))).status == 200
            wait_until(lambda: complete(running).status_code == 200)


def test_an_engine_that_fails_again_and_again_is_left_alone_and_better_than_none() -> None:
    with behind(silent, good) as (running, (bad, _)):
        wait_until(lambda: complete(running).status_code == 200 and bad.asked >= IN_A_ROW)
        assert running.engines.standing("agent-1").is_ejected
        asked = bad.asked
        assert [complete(running).status_code for _ in range(10)] == [200] * 10
        assert bad.asked == asked
        share = httpx.get(f"{running.url}/metrics").text
        assert 'luminet_gateway_engine_share{agent="agent-1"} 0.0' in share
        running.apply(gateway_snapshot(tenants(), route("agent-1", bad.url)))
        assert told(complete(running)) == (503, "engine_lost")
        assert bad.asked > asked


# Without a control plane


def test_it_serves_on_without_a_control_plane_while_an_engine_dies_and_after_a_restart_of_its_own(
    engines: Mapping[str, Engine],
) -> None:
    """Nobody listens where its control plane was, from the beginning to the end."""
    with ExitStack() as opened:
        home = opened.enter_context(state_folder())
        home.mkdir()
        both = [opened.enter_context(fleet_engine("agent-1")), engines["agent-2"]]
        for one in both:
            assert one.admin("POST", "/apply", told_as(engine_snapshot(tenants()))).status == 200
        routes = [route(agent, f"http://127.0.0.1:{one.port}") for agent, one in zip(AGENTS, both, strict=True)]
        joined_before(home, gateway_snapshot(tenants(), *routes))
        for _ in range(2):
            with gateway_process("--home", str(home), "--canary-seconds", "0") as running:
                assert running.complete().status_code == 200
                wait_until(lambda: UNREACHABLE in httpx.get(f"{running.url}/metrics").text)
                both[0].process.kill()
                both[0].process.wait()
                assert {agent_of(running.complete()) for _ in range(4)} == {"agent-2"}


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_snapshot_that_is_torn_on_disk_is_not_believed_and_harms_nothing(share: float) -> None:
    with state_folder() as home:
        home.mkdir()
        joined_before(home, gateway_snapshot(tenants(), route("agent-1")))
        path = home / "snapshot"
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])
        with gateway_process("--home", str(home)) as running:
            assert told(running.complete()) == (503, "no_snapshot")
            assert httpx.get(f"{running.url}/metrics").status_code == 200
            assert running.process.poll() is None


# Two gateways


def test_of_two_gateways_one_may_be_killed_in_the_midst_of_everything(engines: Mapping[str, Engine]) -> None:
    with ExitStack() as opened:
        one_engine = engines["agent-1"]
        assert one_engine.admin("POST", "/apply", told_as(engine_snapshot(tenants()))).status == 200
        snapshot = gateway_snapshot(tenants(), route("agent-1", f"http://127.0.0.1:{one_engine.port}"))
        both = []
        for _ in range(2):
            home = opened.enter_context(state_folder())
            home.mkdir()
            joined_before(home, snapshot)
            both.append(opened.enter_context(gateway_process("--home", str(home), "--canary-seconds", "0")))
        first, second = both
        http = opened.enter_context(httpx.Client(headers=logged_in(), timeout=60))
        other = opened.enter_context(httpx.Client(headers=logged_in(), timeout=60))
        with (
            other.stream("POST", **asked_for(second, stream=True, max_tokens=200, ignore_eos=True)) as kept,
            http.stream("POST", **asked_for(first, stream=True, **LONG)) as lost,
        ):
            assert (kept.status_code, lost.status_code) == (200, 200)
            parts = lost.iter_bytes()
            assert next(parts)
            first.process.kill()
            assert first.process.wait() == -signal.SIGKILL
            assert events(b"".join(kept.iter_bytes()))[-1] == "[DONE]"
            with pytest.raises(httpx.TransportError):
                b"".join(parts)
        assert second.complete().status_code == 200
        wait_until(lambda: one_engine.admin("GET", "/stats").json["running"] == 0)  # the first request ended too


def test_two_gateways_do_not_spoil_each_others_requests_by_the_same_ids(running: Fleet) -> None:
    running.hold(states={"agent-2": "draining"})
    with gateway() as second:
        second.apply(running.gateway.held.tables.snapshot)
        same = {**logged_in(), "x-request-id": "mine-1"}
        sent = [
            httpx.post(**asked_for(one, max_tokens=1), headers=same, timeout=30)
            for _ in range(4)
            for one in (running.gateway, second)
        ]
        assert [one.status_code for one in sent] == [200] * 8


# What a client never sees


def test_no_header_of_a_retry_is_ever_visible() -> None:
    with behind(silent, good, asked_first="agent-1") as (running, (first, second)):
        answer = complete(running)
        assert (first.asked, second.asked) == (1, 1)
        assert not any("retry" in name for name in answer.headers)
