"""vLLM as a backend: its engine runs in its own process, under our scheduler, and receives vLLM's own messages.

Text, stop strings and ends are computed here, with the same tokenizer as our own engine's. Imports vLLM.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest
from vllm.v1.engine.core_client import AsyncMPClient
from vllm.v1.engine.exceptions import EngineDeadError

from engine_agent.backends.base import Internal, ModelCard
from engine_agent.backends.block_pages import BlockPages, Found, Question
from engine_agent.backends.generation import Told, probe_seconds
from engine_agent.backends.vllm.answering import Choice, logprobs_of
from engine_agent.backends.vllm.asked import FIELD, Asked, admission_unpacked
from engine_agent.backends.vllm.launch import Launched, launch
from engine_agent.backends.vllm.sampling import vllm_params
from engine_agent.backends.vllm.self_test import check_attention
from engine_agent.backends.vllm.telling import (
    error_unpacked,
    found_unpacked,
    load_unpacked,
    question_packed,
    request_error,
)
from engine_agent.contracts.block_events import Load, Page
from engine_agent.contracts.protocol import Change, Snapshot, change_encode, snapshot_encode
from engine_agent.engine.asked import Generate, check_prompt
from engine_agent.engine.errors import (
    BadRequest,
    DeadlinePassed,
    EngineFailed,
    Overloaded,
    Overlong,
    RequestError,
)
from engine_agent.engine.outputs import FinishReason
from engine_agent.engine.params import SamplingParams
from engine_agent.engine.sampler import check_tokens
from engine_agent.engine.settings import EngineSettings
from engine_agent.engine.stops import StopStrings
from engine_agent.engine.tenants import NOBODY
from engine_agent.engine.tokenizer import Tokenizer

LOG = logging.getLogger(__name__)
TICK_SECONDS = 0.5  # between two checks of timers and pins without requests
FOLLOW_SECONDS = 0.1  # between two checks for events while a gateway waits for some
LONGEST_SECONDS = 86_400.0
_FINISHES: Mapping[str, FinishReason] = {"stop": "stop", "length": "length", "repetition": "stop"}


class _Generation(Told):
    """One job, with a vLLM request for each choice of each prompt."""

    def __init__(self, request: Generate, abort: Callable[[list[str]], None]) -> None:
        super().__init__(len(request.prompts), lambda: abort(list(self.choices)))
        self.choices: dict[str, Choice] = {}  # unfinished ones, by vLLM's request
        self._deadline: asyncio.TimerHandle | None = None

    def end_within(self, seconds: float) -> None:
        timeout_error = DeadlinePassed("", "the request's time is over")
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.fail, timeout_error)

    def end(self, error: RequestError | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().end(error)

    def is_said(self, request_id: str) -> None:
        """Remove a choice that is over, and end the job after the last."""
        if self.choices[request_id].is_over:
            del self.choices[request_id]
        if not self.choices:
            self.end(None)


class VllmBackend:
    """Made by `open`, in the event loop that uses it; `close` ends vLLM's processes."""

    def __init__(self, launched: Launched, client: AsyncMPClient, tokenizer: Tokenizer) -> None:
        self.card: ModelCard = launched.card
        self.settings: EngineSettings = launched.settings
        self.tokenizer = tokenizer
        self.on_internal: Internal = lambda kind, namespace, admission: None
        self.on_death: Callable[[], None] = lambda: None
        self.is_dead, self.why_dead = False, ""
        self._launched, self._client = launched, client
        self._loop = asyncio.get_running_loop()
        self._generations: dict[str, tuple[_Generation, int]] = {}  # by vLLM's request, with the prompt's index
        self._numbers = itertools.count()
        self._is_draining = self._is_closing = False
        self._generated = 0
        self._applying = asyncio.Lock()
        self._sending: set[asyncio.Task[Any]] = set()
        self._block_pages = BlockPages(self._look_at_events, hidden=NOBODY)
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._tick())]

    @classmethod
    async def open(
        cls,
        folder: Path,
        *,
        name: str,
        settings: EngineSettings | None = None,
        snapshot: Snapshot | None = None,
        kv_format: str = "auto",
        tell: Callable[[str], None] = lambda line: None,
    ) -> "VllmBackend":
        """Return a backend that has generated a first token. Raises BadModel, BadSetting, EngineFailed, OSError."""
        launched = await asyncio.to_thread(
            launch, folder, name=name, settings=settings or EngineSettings(), kv_format=kv_format, tell=tell
        )
        try:
            tokenizer = Tokenizer.from_folder(folder, launched.model)
        except BaseException:
            await asyncio.to_thread(launched.client.shutdown)
            launched.listening.close()
            raise
        backend = cls(launched, launched.client, tokenizer)
        try:
            await backend._ask("tick")
            check_attention(backend.card.kv_dtypes[0], await backend._ask("attention_error"))
            await backend.probe()
            if snapshot is not None:
                await backend.apply(snapshot)
        except BaseException:
            await backend.close()
            raise
        return backend

    async def close(self) -> None:
        """Close the backend. Running requests end with an error."""
        if self._is_closing:
            return
        self._is_closing = True
        self._abandon()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._client.shutdown)
        self._launched.listening.close()

    # Requests

    async def generate(self, request: Generate) -> _Generation:
        """Send a request. Raises a RequestError. Cancellation while it waits withdraws the request."""
        if self._is_draining and request.kind == "customer":
            raise Overloaded("", "the engine is being drained: try another one")
        generation = _Generation(request, self._abort)
        core_requests = self._requests(request, generation)
        if request.deadline_seconds is not None:
            generation.end_within(min(request.deadline_seconds, LONGEST_SECONDS))
        await generation.ready(self._send(core_requests))
        return generation

    def _requests(self, request: Generate, generation: _Generation) -> list[EngineCoreRequest]:
        """Return the vLLM requests of a job, all checked before any is sent."""
        if not request.prompts:
            raise BadRequest("prompt", "no prompt at all")
        params, card = request.sampling, self.card
        check_tokens(params, card.vocab_size)
        if params.n > self.seats:
            raise BadRequest("n", f"{params.n} answers are more than run here at once, {self.seats}")
        core_requests = []
        for prompt_index, prompt in enumerate(request.prompts):
            check_prompt(prompt, context_tokens=card.context_tokens, vocab_size=card.vocab_size)
            room = card.context_tokens - len(prompt)
            if (params.max_tokens or 1) > room:
                excess = f"{len(prompt):,} tokens of prompt and {params.max_tokens or 1:,} of answer are more than the "
                raise Overlong("max_tokens", f"{excess}model's context of {card.context_tokens:,}")
            for number in range(params.n):
                core_request = self._request(request, prompt_index, number, room)
                choice = prompt_index * params.n + number
                text = self.tokenizer.detokenizer(params.skip_special_tokens)
                stops = StopStrings(params.stop, include=params.include_stop)
                generation.choices[core_request.request_id] = Choice(
                    choice, params, self.tokenizer.eos_ids, text, stops
                )
                core_requests.append((core_request, prompt_index))
        self._generations |= {
            core_request.request_id: (generation, prompt_index) for core_request, prompt_index in core_requests
        }
        return [core_request for core_request, _ in core_requests]

    def _request(self, request: Generate, prompt_index: int, number: int, room: int) -> EngineCoreRequest:
        params: SamplingParams = request.sampling
        extra = Asked(
            namespace=request.namespace,
            kv_format=request.kv_dtype,
            salt=request.cache_salt.hex(),
            ttl_seconds=request.ttl_seconds,
            kind=request.kind if number == 0 or request.kind != "customer" else "sibling",
            elsewhere_tokens=0 if prompt_index else request.elsewhere_tokens,
            room_for_tokens=params.max_tokens or 0,
            is_told=True,
        )
        # vLLM's own hashes are salted, too, so that no other user of them could confuse two namespaces.
        salt = sha256(f"{request.namespace}\0{request.cache_salt.hex()}\0{self._launched.secret}".encode()).hexdigest()
        seeded = params if params.seed is None else _reseeded(params, number)
        return EngineCoreRequest(
            request_id=f"{request.request_id[:64]}/{next(self._numbers)}",
            prompt_token_ids=list(request.prompts[prompt_index]),
            mm_features=None,
            sampling_params=vllm_params(
                seeded, max_tokens=params.max_tokens or room, eos_ids=self.tokenizer.eos_ids, extra=extra.packed()
            ),
            pooling_params=None,
            arrival_time=time.time(),
            lora_request=None,
            cache_salt=salt,
            data_parallel_rank=None,
            priority=request.priority,
        )

    async def probe(self) -> float:
        return await probe_seconds(self.generate, lambda: self._generated)

    # Tenants

    async def apply(self, change: Snapshot | Change) -> str:
        async with self._applying:
            message = snapshot_encode(change) if isinstance(change, Snapshot) else change_encode(change)
            return str(await self._ask("apply", message))

    async def set_pin_content(self, pin_id: str, token_ids: Sequence[int]) -> None:
        await self._ask("pin_content", pin_id, list(token_ids))

    async def pins(self) -> list[Mapping[str, Any]]:
        return list(await self._ask("pins"))

    # Queries

    async def take_receipts(self) -> list[Mapping[str, Any]]:
        return list(await self._ask("receipts"))

    async def stats(self) -> Mapping[str, Any]:
        return self._with_draining(await self._ask("stats"))

    async def brief(self) -> Mapping[str, Any]:
        return self._with_draining(await self._ask("brief"))

    async def levels(self) -> Mapping[str, Any]:
        return dict(await self._ask("levels"))

    async def foretell(self, namespaces: Sequence[str]) -> Mapping[str, Any]:
        return dict(await self._ask("foretell", list(namespaces)))

    async def events(self, since: int, boot: str) -> Mapping[str, Any]:
        return dict(await self._ask("events", since, boot))

    async def block_page(self, boot: str, since: int, *, wait_seconds: float = 0.0) -> Page:
        until = self._loop.time() + wait_seconds
        while True:
            page = await self._block_pages.page(boot, since)
            if page.number != since or page.is_snapshot or self._loop.time() >= until:
                return page
            await asyncio.sleep(min(FOLLOW_SECONDS, max(0.0, until - self._loop.time())))

    async def _look_at_events(self, question: Question | None) -> tuple[Found, Load]:
        changes, load = await self._ask("look", question_packed(question))
        return found_unpacked(changes), load_unpacked(load)

    @property
    def scale_sets(self) -> Mapping[str, str]:
        return dict.fromkeys(self.card.kv_dtypes, "")

    @property
    def seats(self) -> int:
        return self.settings.most_running

    async def check_integrity(self) -> list[str]:
        return list(await self._ask("integrity"))

    async def is_open(self) -> bool:
        if self.is_dead or self._is_closing:
            raise EngineFailed("", "the engine is closed")
        return not self._is_draining

    async def drain(self, is_draining: bool) -> int:
        if self.is_dead:
            return 0
        self._is_draining = is_draining
        return int(await self._ask("drain", is_draining))

    def _with_draining(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**status, "is_draining": self._is_draining}

    async def _ask(self, verb: str, *arguments: Any) -> Any:
        """Call the engine process between two of vLLM's steps."""
        if self.is_dead or self._is_closing:
            raise EngineFailed("", "the engine is closed")
        try:
            response = await self._client.call_utility_async("luminet", verb, list(arguments))
        except EngineFailed:
            raise
        except Exception as problem:
            raise EngineFailed("", f"vLLM's engine did not answer: {problem}") from problem
        if "error" in response:
            raise error_unpacked(response["error"])
        return response["ok"]

    # vLLM's outputs

    async def _listen(self) -> None:
        try:
            while True:
                for output in (await self._client.get_output_async()).outputs:
                    self._take(output)
        except asyncio.CancelledError:
            raise
        except Exception as problem:
            self._die(problem)

    def _take(self, output: EngineCoreOutput) -> None:
        transfer_params = (output.kv_transfer_params or {}).get(FIELD, {})
        if "internal" in transfer_params:
            kind, namespace, admission = transfer_params["internal"]
            self.on_internal(kind, namespace, admission_unpacked(admission))
            return
        generation, prompt = self._generations.get(output.request_id, (None, 0))
        if generation is None:
            return
        if "admission" in transfer_params:
            generation.admit(prompt, admission_unpacked(transfer_params["admission"]))
        if "refused" in transfer_params:
            generation.fail(request_error(*transfer_params["refused"]))
        elif output.new_token_ids or output.finish_reason is not None:
            self._say(generation, output)
        if output.finish_reason is not None or generation.is_over:
            self._generations.pop(output.request_id, None)

    def _say(self, generation: _Generation, output: EngineCoreOutput) -> None:
        choice = generation.choices.get(output.request_id)
        if choice is None or generation.is_over:
            return
        self._generated += len(output.new_token_ids)
        finish: FinishReason | None = None
        if output.finish_reason is not None:
            name = str(output.finish_reason)
            if name not in _FINISHES:
                generation.fail(EngineFailed("", f"vLLM ended the request: {name}"))
                return
            finish = _FINISHES[name]
        logprobs = None
        if output.new_logprobs is not None and choice.params.logprobs is not None:
            ids, values, *_ = output.new_logprobs
            logprobs = logprobs_of(ids, values, choice.params.logprobs)
        was_over = output.finish_reason is not None
        for delta in choice.push(output.new_token_ids, logprobs, finish):
            generation.say(delta)
        if choice.is_over and not was_over:
            self._abort([output.request_id])
        generation.is_said(output.request_id)

    async def _send(self, requests: Sequence[EngineCoreRequest]) -> None:
        try:
            for request in requests:
                if self.is_dead or self._is_closing:
                    raise EngineFailed("", "the engine is closed")
                await self._client.add_request_async(request)
        except EngineDeadError as problem:
            raise EngineFailed("", f"vLLM's engine takes no request: {problem}") from problem

    def _abort(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            self._generations.pop(request_id, None)
        if self.is_dead or self._is_closing or not request_ids:
            return
        sending = asyncio.ensure_future(self._client.abort_requests_async(request_ids))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    def _die(self, problem: Exception) -> None:
        manager = self._client.resources.engine_manager
        codes = [process.exitcode for process in manager.processes] if manager else []
        self.why_dead = f"vLLM's engine has ended: {self._launched.listening.cause(codes, str(problem))}"
        LOG.critical("%s", self.why_dead)
        self.is_dead = True
        self._abandon()
        self.on_death()

    def _abandon(self) -> None:
        for generation, _ in list(self._generations.values()):
            generation.fail(EngineFailed("", "the engine was stopped"))
        self._generations.clear()
        for answer in self._client.utility_results.values():  # vLLM's client leaves their callers waiting
            if not answer.done():
                answer.set_exception(EngineFailed("", "the engine was stopped"))

    async def _tick(self) -> None:
        """Keep timers and pins going while vLLM's loop sleeps without requests."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            with suppress(EngineFailed):
                await self._ask("tick")


def _reseeded(params: SamplingParams, number: int) -> SamplingParams:
    """Return a different seed for each choice of a prompt, always the same for the same choice."""
    assert params.seed is not None
    return params if not number else replace(params, seed=(params.seed + number * 0x9E3779B97F4A7C15) % 2**63)
