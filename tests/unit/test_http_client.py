"""A client's other end: work goes on as long as it is there, and no longer."""

import asyncio
from collections.abc import Callable

import pytest

from engine_agent.http.client import Client, ClientGone, Message


class Line:
    """What a server has heard from a client: nothing until it leaves."""

    def __init__(self) -> None:
        self._has_left = asyncio.Event()

    def leave(self) -> None:
        self._has_left.set()

    async def receive(self) -> Message:
        await self._has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        raise AssertionError("nobody is answered here")

    def client(self) -> Client:
        return Client({"method": "POST", "headers": []}, self.receive, self.send, write_seconds=1.0)


async def forever(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("ended")


async def test_what_is_worked_out_is_what_it_comes_to() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    line = Line()
    assert await line.client().staying(work()) == 7
    line.leave()
    for _ in range(5):
        await asyncio.sleep(0)  # who leaves later cancels nothing


async def test_what_goes_wrong_is_told() -> None:
    async def work() -> None:
        raise ValueError("as it happens")

    with pytest.raises(ValueError, match="as it happens"):
        await Line().client().staying(work())


async def test_who_leaves_ends_the_work() -> None:
    line, ended = Line(), list[str]()
    client = line.client()
    asyncio.get_running_loop().call_soon(line.leave)
    with pytest.raises(ClientGone):
        await client.staying(forever(ended))
    assert client.has_left
    assert ended == ["ended"]
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_who_left_before_anything_began_ends_it_at_its_first_wait() -> None:
    line, ended = Line(), list[str]()
    line.leave()
    with pytest.raises(ClientGone):
        await line.client().staying(forever(ended))
    assert ended == ["ended"]


async def test_a_server_that_stops_is_no_client_that_left() -> None:
    ended = list[str]()
    task = asyncio.create_task(Line().client().staying(forever(ended)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["ended"]


async def test_a_server_that_stops_as_a_client_leaves_still_stops() -> None:
    line, ended = Line(), list[str]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            task.cancel()  # in the midst of it
            ended.append("ended")

    task = asyncio.create_task(line.client().staying(work()))
    await asyncio.sleep(0)
    line.leave()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["ended"]


@pytest.mark.parametrize("wait", [asyncio.timeout, asyncio.timeout_at])
async def test_a_time_that_is_up_inside_the_work_is_told_as_that(
    wait: Callable[[float], asyncio.Timeout],
) -> None:
    async def work() -> None:
        async with wait(0.0):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await Line().client().staying(work())
