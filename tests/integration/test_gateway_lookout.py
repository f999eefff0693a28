"""How a gateway looks at its engines: at them alone, no further than it must, and until it gives one up that hangs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from engine_agent.gateway import engines as lookout
from engine_agent.gateway import silence
from engine_agent.gateway.engines import Engines, Lookout
from engine_agent.gateway.looking import session_open
from engine_agent.gateway.tables import Engine
from engine_agent.gateway.upstream import Unanswered, Upstream
from tests.support.waiting import wait_until_async

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
SECONDS = 30


async def well(request: web.Request) -> web.StreamResponse:
    return web.Response(text="{}")


async def refusing(request: web.Request) -> web.StreamResponse:
    return web.Response(status=503)


async def hanging(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


@asynccontextmanager
async def engine(health: Answer, generate: Answer = hanging) -> AsyncIterator[Engine]:
    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_post("/v1/completions", generate)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield Engine("agent-1", f"http://{host}:{port}", True, {}, b"s" * 44)
    finally:
        await runner.cleanup()


@asynccontextmanager
async def looking(engines: Engines, known: dict[str, Engine]) -> AsyncIterator[None]:
    async with session_open() as session:
        task = asyncio.create_task(Lookout(engines, lambda: known, session).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})


async def asked(engines: Engines, engine: Engine) -> int:
    """The status it answers with, as a request of the gateway's sees it."""
    async with Upstream() as upstream:
        waiting = engines.waiting(engine.agent)
        with engines.serving(engine.agent):
            async with upstream.asked(
                engine, "/v1/completions", b"{}", identity="v1", request_id="r", waiting=waiting
            ) as answer:
                return answer.status


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LOOK_SECONDS", 0.02), ("MOST_LOOK_SECONDS", 0.1), ("TICK_SECONDS", 0.02)):
        monkeypatch.setattr(lookout, name, seconds)
    monkeypatch.setattr(silence, "SILENT_SECONDS", 0.3)


async def test_an_engine_leads_no_look_elsewhere(hasty: None) -> None:
    hits: list[str] = []

    async def inner(request: web.Request) -> web.StreamResponse:
        hits.append(request.path)
        return web.Response(text="{}")

    async with engine(inner) as other:

        async def leading(request: web.Request) -> web.StreamResponse:
            raise web.HTTPFound(f"{other.address}/health")

        engines = Engines()
        async with engine(leading) as one, looking(engines, {one.agent: one}):
            await wait_until_async(lambda: not engines.standing(one.agent).is_reachable)
    assert hits == []


async def test_an_engine_that_never_ends_its_answer_fills_no_gateway(hasty: None) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        while sent < 2**28:
            await answer.write(b"x" * 2**20)
            sent += 2**20
        return answer

    engines = Engines()
    async with engine(endless) as one, looking(engines, {one.agent: one}):
        await wait_until_async(lambda: engines.standing(one.agent).look_seconds > 0)  # it was looked at, and is well
    assert sent < 2**26


async def test_an_engine_that_hangs_is_waited_for_no_longer(hasty: None) -> None:
    engines = Engines()
    async with engine(hanging) as one, looking(engines, {one.agent: one}):
        with pytest.raises(Unanswered):
            await asyncio.wait_for(asked(engines, one), SECONDS)
        assert not engines.standing(one.agent).is_reachable


async def test_one_that_left_the_fleet_while_it_hangs_is_waited_for_no_longer_either(hasty: None) -> None:
    engines = Engines()
    async with engine(hanging) as one:
        known = {one.agent: one}
        async with looking(engines, known):
            asking = asyncio.create_task(asked(engines, one))
            await wait_until_async(lambda: engines.standing(one.agent).in_flight == 1)
            await wait_until_async(lambda: not engines.standing(one.agent).is_reachable)
            known.clear()
            with pytest.raises(Unanswered):
                await asyncio.wait_for(asking, SECONDS)


@pytest.mark.parametrize("health", [well, refusing])
async def test_who_answers_how_it_is_may_take_any_time_for_a_prompt(hasty: None, health: Answer) -> None:
    looks, may_answer = 0, asyncio.Event()

    async def counted(request: web.Request) -> web.StreamResponse:
        nonlocal looks
        looks += 1
        return await health(request)

    async def slow(request: web.Request) -> web.StreamResponse:
        await may_answer.wait()
        return web.Response()

    engines = Engines()
    async with engine(counted, slow) as one, looking(engines, {one.agent: one}):
        asking = asyncio.create_task(asked(engines, one))
        await wait_until_async(lambda: looks >= 40)  # 20 ms apart at least: for longer than who hangs is waited for
        may_answer.set()
        assert await asking == 200


async def test_broken_silence_begins_again() -> None:
    engines, limit = Engines(), silence.SILENT_SECONDS
    is_waited_for = False

    async def wait() -> None:
        nonlocal is_waited_for
        async with engines.waiting("agent-1"):
            with engines.looking("agent-1"):
                pass_by(engines, limit - 1)
                engines.spoke("agent-1")
                pass_by(engines, limit - 1)
                await asyncio.sleep(0)  # were it given up, it would end here
                is_waited_for = True
                pass_by(engines, 1)
                await asyncio.sleep(SECONDS)

    with pytest.raises(TimeoutError):
        await wait()
    assert is_waited_for
    assert engines.standing("agent-1").is_silent


async def test_who_comes_to_silent_engine_waits_no_longer_either() -> None:
    engines = Engines()

    async def wait() -> None:
        async with engines.waiting("agent-1"):
            pass_by(engines, lookout.TICK_SECONDS)
            await asyncio.sleep(SECONDS)

    with engines.looking("agent-1"):
        pass_by(engines, silence.SILENT_SECONDS)
    with pytest.raises(TimeoutError):
        await wait()


def pass_by(engines: Engines, seconds: float) -> None:
    for _ in range(int(seconds / lookout.TICK_SECONDS)):
        engines.passed(lookout.TICK_SECONDS)
