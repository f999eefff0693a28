"""The backend's side of vLLM's messages, with vLLM's real client and no engine at its other end."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from vllm.v1.engine.core_client import AsyncMPClient, BackgroundResources
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.serial_utils import MsgpackEncoder

from engine_agent.backends.base import ModelCard
from engine_agent.backends.vllm import backend as backends
from engine_agent.backends.vllm.asked import FIELD, admission_packed
from engine_agent.backends.vllm.backend import VllmBackend
from engine_agent.backends.vllm.dying import Listening
from engine_agent.backends.vllm.launch import Launched
from engine_agent.engine.asked import Generate
from engine_agent.engine.config import read_config
from engine_agent.engine.errors import BadModel, EngineFailed
from engine_agent.engine.outputs import Admission
from engine_agent.engine.params import SamplingParams
from engine_agent.engine.settings import EngineSettings
from engine_agent.engine.tokenizer import Tokenizer
from tests.vllm.inside.scheduling import DEMO

SOON_SECONDS = 10
CARD = ModelCard("demo", "r", 0, 512, 1000, 16, ("bf16",), "cpu", "bfloat16")
ADMISSION = Admission(2, 0, "bf16", 1, "cold", {"tail": 2}, "acme")


class Client(AsyncMPClient):  # type: ignore[misc]
    """What it sends arrives nowhere."""

    def __init__(self) -> None:
        self.resources = BackgroundResources(ctx=None)
        self.utility_results: dict[int, asyncio.Future[Any]] = {}
        self.outputs_queue: asyncio.Queue[Any] = asyncio.Queue()
        self.encoder = MsgpackEncoder()
        self.client_index, self.core_engine = 0, b""
        self.requests: list[EngineCoreRequest] = []
        self.is_asked = asyncio.Event()
        self.is_shut = False

    def _ensure_output_queue_task(self) -> None:
        """Nothing comes but what a test says."""

    def _send_input_message(self, message: object, engine: bytes) -> Awaitable[None]:
        self.ensure_alive()
        self.is_asked.set()
        return asyncio.sleep(0)

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        self.requests.append(request)
        await super().add_request_async(request)

    def shutdown(self, timeout: float | None = None) -> None:
        """There is nothing to end."""
        self.is_shut = True

    def say(self, tokens: list[int], **fields: Any) -> None:
        output = EngineCoreOutput(self.requests[-1].request_id, tokens, **fields)
        self.outputs_queue.put_nowait(EngineCoreOutputs(outputs=[output]))

    def die(self) -> None:
        self.resources.engine_dead = True
        self.outputs_queue.put_nowait(EngineDeadError())


def launched(client: Client) -> Launched:
    settings = EngineSettings().sized(gpu_free_bytes=None)
    return Launched(client, CARD, settings, read_config(DEMO), "secret", Listening())


def with_backend(story: Callable[[VllmBackend, Client], Awaitable[None]]) -> None:
    async def told() -> None:
        client = Client()
        tokenizer = Tokenizer.from_folder(DEMO, read_config(DEMO))
        backend = VllmBackend(launched(client), client, tokenizer)
        async with asyncio.timeout(SOON_SECONDS):
            await story(backend, client)
        await backend.close()

    asyncio.run(told())


def asked(**fields: Any) -> Generate:
    return Generate("r", "acme", ((1, 2),), SamplingParams(max_tokens=1), **fields)


def test_who_asks_while_the_engine_dies_is_told_so() -> None:
    async def story(backend: VllmBackend, client: Client) -> None:
        asking = [asyncio.create_task(one) for one in (backend.stats(), backend.generate(asked()))]
        await asyncio.sleep(0.1)
        assert not any(one.done() for one in asking)
        client.die()
        for one in asking:
            with pytest.raises(EngineFailed, match="the engine was stopped"):
                await one
        assert backend.is_dead

    with_backend(story)


def test_who_asks_while_the_backend_is_closed_is_told_so() -> None:
    async def story(backend: VllmBackend, client: Client) -> None:
        asking = asyncio.create_task(backend.stats())
        await asyncio.sleep(0.1)
        await backend.close()
        with pytest.raises(EngineFailed, match="the engine was stopped"):
            await asking

    with_backend(story)


def test_a_request_to_an_engine_that_is_found_dead_fails_in_our_words() -> None:
    async def story(backend: VllmBackend, client: Client) -> None:
        client.resources.engine_dead = True  # as vLLM's own watch says, before anybody is told
        with pytest.raises(EngineFailed, match="vLLM's engine takes no request"):
            await backend.generate(asked())

    with_backend(story)


def test_an_engine_that_dies_while_it_is_opened_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    async def told() -> None:
        client = Client()
        monkeypatch.setattr(backends, "launch", lambda *_, **__: launched(client))
        async with asyncio.timeout(SOON_SECONDS):
            opening = asyncio.create_task(VllmBackend.open(DEMO, name="demo"))
            await client.is_asked.wait()
            client.die()
            with pytest.raises(EngineFailed):
                await opening

    asyncio.run(told())


def test_what_killed_the_engine_is_said() -> None:
    async def story(backend: VllmBackend, client: Client) -> None:
        client.resources.engine_manager = SimpleNamespace(processes=[SimpleNamespace(exitcode=-9)])
        is_told = asyncio.Event()
        backend.on_death = is_told.set
        client.die()
        await is_told.wait()
        client.resources.engine_manager = None
        assert backend.why_dead.startswith("vLLM's engine has ended: one of its processes was ended by SIGKILL")

    with_backend(story)


def test_where_no_tokenizer_can_be_read_vllms_processes_are_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def told() -> None:
        client = Client()
        monkeypatch.setattr(backends, "launch", lambda *_, **__: launched(client))
        with pytest.raises(BadModel, match="is missing"):
            await VllmBackend.open(tmp_path, name="demo")
        assert client.is_shut

    asyncio.run(told())


def test_what_has_ended_is_not_kept_until_its_deadline() -> None:
    async def story(backend: VllmBackend, client: Client) -> None:
        asking = asyncio.create_task(backend.generate(asked(deadline_seconds=3600)))
        await client.is_asked.wait()
        client.say([], kv_transfer_params={FIELD: {"admission": admission_packed(ADMISSION)}})
        generation = await asking
        client.say([5], finish_reason=FinishReason.LENGTH)
        assert [delta.finish async for delta in generation] == ["length"]
        kept = weakref.ref(generation)
        del generation, asking
        await asyncio.sleep(0)
        gc.collect()
        assert kept() is None

    with_backend(story)
