"""An engine's answers as its sidecar takes them: what is odd is no answer, and only what is final is a rejection."""

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from engine_agent.process.last_words import last_words_leave
from engine_agent.sidecar.admin import AdminHolder, Advertised, EngineFace
from engine_agent.sidecar.holder import HolderAway, HolderError, HolderMismatch, HolderRejected

Ask = Callable[[AdminHolder], Awaitable[object]]
ASKED: tuple[Ask, ...] = (
    lambda holder: holder.about(),
    lambda holder: holder.state(),
    lambda holder: holder.apply(b"{}"),
    lambda holder: holder.proofs("", 0),
    lambda holder: holder.counters(["fleet"]),
    lambda holder: holder.pins_wanted(),
)


async def _answered(status: int, body: str, *asks: Ask) -> list[BaseException | object]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is short
        path = Path(folder) / "s"
        await web.UnixSite(runner, str(path)).start()
        holder = AdminHolder(EngineFace(path), Advertised())
        try:
            return await asyncio.gather(*(ask(holder) for ask in asks), return_exceptions=True)
        finally:
            await holder.close()
            await runner.cleanup()


def answered(status: int, body: str, *asks: Ask) -> list[BaseException | object]:
    return asyncio.run(_answered(status, body, *asks))


@pytest.mark.parametrize("body", ["<html>", "{}", "[]", "7", '{"pins": 7, "pool": 7, "model": []}', "[" * 100_000])
def test_an_odd_answer_is_as_good_as_none(body: str) -> None:
    assert {type(one) for one in answered(200, body, *ASKED)} == {HolderAway}


CARD = {
    "name": "demo", "revision": "r", "kv_dtypes": ["fp8_e4m3", "fp8"], "context_tokens": 512, "block_tokens": 32,
    "block_bytes": {}, "accelerator": None,
}  # fmt: skip


def told_about(**card: object) -> Mapping[str, Any]:
    """What the sidecar tells of an engine that says this of itself."""
    stats = {"model": {**CARD, **card}, "address": "http://127.0.0.1:8101", "pool": {"capacity_bytes": 1}}
    (found,) = answered(200, json.dumps(stats), lambda holder: holder.about())
    assert isinstance(found, dict), found
    return found


def test_who_computes_is_handed_on_as_the_engine_says_it() -> None:
    about = told_about(backend="vllm", backend_version="0.32.0", computed_as={"fp8": "fp8_e4m3"})
    assert (about["backend"], about["backend_version"]) == ("vllm", "0.32.0")
    assert about["computed_as"] == {"fp8": "fp8_e4m3"}
    assert about["enforcement"] == {}


def test_what_an_engine_enforces_is_handed_on() -> None:
    declared = {"weight": {"grade": "best_effort", "why": "steps are shared out by vLLM"}}
    assert told_about(enforcement=declared)["enforcement"] == declared


def test_an_engine_of_before_that_does_not_say_who_computes_is_our_own() -> None:
    about = told_about()
    assert (about["backend"], about["backend_version"], about["computed_as"]) == ("paged", "", {})


def error(code: str) -> str:
    return f'{{"error": {{"code": "{code}", "message": "why"}}}}'


def test_only_what_an_engine_can_never_obey_is_rejected(subtests: pytest.Subtests) -> None:
    cases: list[tuple[int, str, type[HolderError]]] = [
        (400, "malformed", HolderRejected),
        (422, "rejected", HolderRejected),
        (409, "hash_mismatch", HolderMismatch),
        (400, "gone", HolderAway),
        (401, "invalid", HolderAway),
        (404, "unknown_path", HolderAway),
        (409, "alone", HolderAway),
        (413, "too_large", HolderAway),
        (429, "busy", HolderAway),
        (503, "engine_failed", HolderAway),
    ]
    for status, code, kind in cases:
        with subtests.test(msg=f"{status!r}, {code!r}"):
            assert [type(one) for one in answered(status, error(code), lambda holder: holder.apply(b"{}"))] == [kind]


def test_a_pin_that_an_engine_does_not_take_is_rejected() -> None:
    ask: Ask = lambda holder: holder.pin_content("p1", {})  # noqa: E731
    assert [type(one) for one in answered(400, error("invalid_value"), ask)] == [HolderRejected]
    assert [type(one) for one in answered(401, error("unauthorized"), ask)] == [HolderAway]


def test_an_engine_that_somebody_else_starts_is_away_for_the_reason_it_left(tmp_path: Path) -> None:
    """Until it answers: `make up` starts engines and sidecars side by side."""
    holder = AdminHolder(EngineFace(tmp_path / "admin.sock"), Advertised(), words_in=tmp_path)
    last_words_leave(tmp_path, "vLLM's engine has ended: one of its processes was ended by SIGKILL")

    async def looked_twice() -> list[str]:
        found = await asyncio.gather(holder.state(), holder.state(), return_exceptions=True)
        await holder.close()
        return [str(one) for one in found]

    assert [said.count("the engine ended: vLLM's engine has ended") for said in asyncio.run(looked_twice())] == [1, 1]
