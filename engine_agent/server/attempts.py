"""One attempt at a request, from its parsed body to its last byte.

The record is written only when the headers are about to be sent and the client is still connected, so it counts exactly
what clients were told. Headers are sent at admission for a stream, and at the end for a complete answer.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from engine_agent.backends.base import Generate, Generation
from engine_agent.contracts.identity import Identity
from engine_agent.engine.errors import DeadlinePassed, EngineFailed, RequestError
from engine_agent.engine.outputs import Delta, FinishReason
from engine_agent.http.client import Client, ClientGone
from engine_agent.http.errors import ApiError, failed, unavailable
from engine_agent.http.headers import EVENT_STREAM
from engine_agent.http.sse import DONE, event
from engine_agent.journal.journal import JournalFull, Opened
from engine_agent.server.answers import Head, Shape, gathered, spelt, usage
from engine_agent.server.errors import api_error
from engine_agent.server.face import Face, Understood
from engine_agent.server.headers import counted_headers
from engine_agent.server.meter import Meter
from engine_agent.server.records import opened_record
from engine_agent.server.schemas import names_of

log = logging.getLogger(__name__)
JOURNAL_RETRY_SECONDS = 5
SMALL_ANSWER_TOKENS = 256  # including their alternatives: encoded in a few milliseconds
Outcome = Literal["stop", "length", "cancelled", "deadline", "error"]
_GRAVITY: Sequence[FinishReason] = ("stop", "length", "cancelled", "deadline", "error")


class Attempt:
    def __init__(self, face: Face, identity: Identity, understood: Understood, client: Client, meter: Meter) -> None:
        self._face, self._identity, self._client, self._meter = face, identity, client, meter
        self._asked, self._understood = understood.asked, understood
        card = face.backend.card
        answer_id = f"{understood.id_prefix}{identity.request_id}"
        self._head = Head(answer_id, int(time.time()), card.name, f"fp_{card.revision[:12]}")
        self._shape: Shape = understood.shape(self._head)
        self._is_closed, self._number = False, 0  # the number of its record
        self._choices = self._unfinished = len(understood.prompts) * understood.sampling.n

    async def run(self) -> None:
        """Answer the request, or raise an ApiError before any answer was sent."""
        try:
            generation = await self._face.backend.generate(self._generate())
        except RequestError as error:
            raise self._told(error) from None
        try:
            self._check_organisation(generation)
            await (self._stream(generation) if self._asked.stream else self._whole(generation))
        finally:
            generation.cancel()

    def _generate(self) -> Generate:
        request, identity = self._asked, self._identity
        remaining_seconds = None if identity.deadline is None else identity.deadline - self._face.clock()
        if remaining_seconds is not None and remaining_seconds <= 0:
            raise DeadlinePassed("", "it came too late")
        return Generate(
            request_id=f"{identity.request_id}.{identity.attempt}.{next(self._face.numbers)}",
            namespace=identity.namespace_id,
            prompts=self._understood.prompts,
            sampling=self._understood.sampling,
            kind=identity.kind,
            kv_dtype=request.kv_cache_dtype,
            cache_salt=request.salt,
            ttl_seconds=request.ttl_seconds,
            priority=request.priority,
            deadline_seconds=remaining_seconds,
            elsewhere_tokens=identity.elsewhere_tokens,
        )

    # Complete answers

    async def _whole(self, generation: Generation) -> None:
        deltas: list[Delta] = []
        try:
            async for delta in generation:
                self._take(delta)
                deltas.append(delta)
            self._check_complete()
        except RequestError as error:
            raise self._told(error) from None
        record = self._record(generation)
        answer = await self._told_whole(deltas, record)
        opened = await self._open(record)
        self._close(opened, _outcome(deltas))
        headers = [("content-type", "application/json"), *counted_headers(opened, self._face.agent_id)]
        await self._client.answer(200, answer, headers)

    async def _told_whole(self, deltas: Sequence[Delta], record: Opened) -> bytes:
        """Return the answer's bytes. Large ones are encoded in a thread, so that others' tokens continue meanwhile."""

        def told() -> bytes:
            answer = self._shape.whole(gathered(deltas, self._choices))
            return "".join(spelt({**answer, "usage": usage(record, self._meter.tokens)})).encode()

        logprobs = len(deltas) * (self._understood.sampling.logprobs or 0)
        return told() if len(deltas) + logprobs <= SMALL_ANSWER_TOKENS else await asyncio.to_thread(told)

    # Streams

    async def _stream(self, generation: Generation) -> None:
        opened = await self._open(self._record(generation))
        try:
            await self._client.start(200, [*EVENT_STREAM, *counted_headers(opened, self._face.agent_id)])
            await self._parts(generation, opened)
        except ClientGone:
            raise
        except RequestError as error:
            self._close(opened, "deadline" if isinstance(error, DeadlinePassed) else "error")
            await self._break_off(self._told(error))
        except Exception:
            log.exception("request %s: its stream broke off", self._identity.request_id)
            self._close(opened, "error")
            await self._break_off(failed())
        finally:
            self._close(opened, "cancelled")  # without effect if it was closed already

    async def _parts(self, generation: Generation, opened: Opened) -> None:
        for part in self._shape.opening():
            await self._say(part, opened)
        ends: list[Delta] = []
        async for delta in generation:
            self._take(delta)
            ends += [delta] if delta.finish else []
            if (chunk := self._shape.part(delta)) is not None:
                await self._say(chunk, opened)
        self._check_complete()
        if self._asked.includes_usage:
            await self._client.write(event({**self._shape.closing(), "usage": usage(opened, self._meter.tokens)}))
        self._close(opened, _outcome(ends))  # before the client knows that the answer is complete
        await self._client.write(DONE, more=False)

    async def _say(self, part: dict[str, object], opened: Opened) -> None:
        if self._asked.includes_usage:
            part["usage"] = usage(opened, self._meter.tokens) if self._asked.is_usage_continuous else None
        await self._client.write(event(part))

    async def _break_off(self, error: ApiError) -> None:
        """Send an error event without a following [DONE], because the status was already sent."""
        self._face.observer.failed(error.code or str(error.status))
        await self._client.write(event(error.body), more=False)

    # Common to both

    def _take(self, delta: Delta) -> None:
        """Count an output, or raise a RequestError if it ends a choice with a failure."""
        if delta.finish == "deadline":
            raise DeadlinePassed("", "its time was over")
        if delta.finish in ("cancelled", "error"):
            raise EngineFailed("", f"an answer ended: {delta.finish}")
        self._meter.count(delta)
        self._unfinished -= delta.finish is not None

    def _check_complete(self) -> None:
        if self._unfinished:
            raise EngineFailed("", f"{self._unfinished} answers have no end")

    def _check_organisation(self, generation: Generation) -> None:
        """Check that the request's organisation owns the namespace by the engine's snapshot. Identities may be old."""
        if any(admission.organisation_id != self._identity.organisation_id for admission in generation.admissions):
            problem = "The namespace is another organisation's than the one the request is for."
            raise ApiError(403, problem, code="wrong_organisation")

    def _record(self, generation: Generation) -> Opened:
        model = self._face.backend.card.name
        return opened_record(self._identity, generation.admissions, model=model, at=self._face.clock())

    async def _open(self, record: Opened) -> Opened:
        """Write the record to disk. Nothing may be awaited between this and the headers."""
        await asyncio.sleep(0)  # afterwards `has_left` is current
        if self._client.has_left:
            raise ClientGone
        opened = replace(record, at=self._face.clock())
        try:
            self._number = self._face.journal.opened(opened)
        except JournalFull as problem:
            log.error("request %s: %s", self._identity.request_id, problem)
            message = f"The engine cannot keep account of the request: {problem.why}."
            raise unavailable(message, "journal_full", retry_seconds=JOURNAL_RETRY_SECONDS) from None
        self._face.observer.totals.opened(opened, self._number)
        self._face.observer.opened(opened)
        self._meter.opened(self._face.observer, opened)
        return opened

    def _close(self, opened: Opened, outcome: Outcome) -> None:
        """Close the record. Only the first outcome counts."""
        if self._is_closed:
            return
        self._is_closed = True
        closed = self._meter.closed(self._number, self._identity, outcome, at=self._face.clock())
        self._face.journal.closed(closed)
        self._face.observer.closed(opened, closed)

    def _told(self, error: RequestError) -> ApiError:
        if isinstance(error, EngineFailed):
            log.error("request %s: the engine failed: %s", self._identity.request_id, error)
        return api_error(error, names_of(self._asked))


def _outcome(deltas: Sequence[Delta]) -> Outcome:
    """Return the most severe outcome of all choices."""
    return max((delta.finish for delta in deltas if delta.finish), key=_GRAVITY.index)
