"""Requests to the control plane as they go over the wire."""

import asyncio
import gzip
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from engine_agent.sidecar.clock import ControlPlaneClock
from engine_agent.sidecar.errors import ControlPlaneAway
from engine_agent.sidecar.link import LARGEST_PLAIN_BYTES, LONGEST_WAIT_SECONDS, Link


async def _reported(
    batch: bytes, status: int, headers: Mapping[str, str], told: Mapping[str, Any]
) -> tuple[Any, list[tuple[str, bytes]]]:
    """What came of it, and what arrived; after an answer that told that."""
    arrived: list[tuple[str, bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        arrived.append((request.headers.get("content-encoding", ""), await request.read()))
        body = dict(told) if status == 200 else {"error": {"code": "unavailable", "message": "not now"}}
        return web.json_response(body, status=status, headers=headers)

    app = web.Application(handler_args={"auto_decompress": False})
    app.router.add_post("/agent/v1/reports", answer)
    runner = web.AppRunner(app, auto_decompress=False)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    link = Link(site.name, "lat_x", ControlPlaneClock())
    try:
        if told:
            await link.report(b"first")
            arrived.clear()
        return await link.report(batch), arrived
    except ControlPlaneAway as problem:
        return problem, arrived
    finally:
        await link.close()
        await runner.cleanup()


def reported(
    batch: bytes, *, status: int = 200, told: Mapping[str, Any] | None = None, **headers: str
) -> tuple[Any, list[tuple[str, bytes]]]:
    named = {name.replace("_", "-"): one for name, one in headers.items()}
    return asyncio.run(_reported(batch, status, named, told or {}))


def test_a_large_batch_is_packed_and_a_small_one_goes_as_it_is() -> None:
    small, large = b"x" * LARGEST_PLAIN_BYTES, b"y" * 100_000
    told: dict[str, Any] = {"journal": {}}
    assert reported(small, told=told) == (told, [("", small)])
    found, [(encoding, body)] = reported(large, told=told)
    assert (found, encoding, gzip.decompress(body)) == (told, "gzip", large)
    assert len(body) < 1_000


@pytest.mark.parametrize("told", [{}, {"acknowledged": 3}])
def test_nothing_is_packed_for_a_control_plane_that_is_not_known_to_unpack(told: dict[str, Any]) -> None:
    large = b"y" * 100_000
    assert reported(large, told=told) == (told, [("", large)])


@pytest.mark.parametrize(
    ("status", "retry_after", "seconds"),
    [
        (503, "12", 12.0),
        (429, "3", 3.0),
        (503, "999999", LONGEST_WAIT_SECONDS),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", 0.0),
        (503, "-5", 0.0),
        (500, "12", 0.0),
    ],
)
def test_a_control_plane_that_asks_for_patience_is_heard(status: int, retry_after: str, seconds: float) -> None:
    found, _ = reported(b"{}", status=status, retry_after=retry_after)
    assert isinstance(found, ControlPlaneAway)
    assert found.wait_seconds == seconds
