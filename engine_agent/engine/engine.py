"""The engine: takes requests and returns tokens, one step after the other. One thread, no waiting, no network.

A step admits requests, divides its tokens among those with something to compute, carries out the block manager's
operations on the pages, and runs one forward pass. Then the computed blocks can be matched, and each waiting choice
gets its next token. Everything else (a snapshot, a purge, a cancelled request) happens between two steps.
"""

import heapq
import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine_agent.cache.books import DEVICE
from engine_agent.cache.errors import CacheError, NeverFits, UnknownNamespace
from engine_agent.cache.manager import BlockManager, Deferred
from engine_agent.cache.prefixes import PurgeReceipt
from engine_agent.cache.sequences import Sequence as BlockSequence
from engine_agent.contracts.protocol import Change, Snapshot
from engine_agent.engine.admissions import SEAT_SECONDS, Admissions
from engine_agent.engine.answering import Answering, not_finite
from engine_agent.engine.asked import Generate, check_prompt
from engine_agent.engine.batch import BatchRow
from engine_agent.engine.beams import BeamSearch, Step
from engine_agent.engine.errors import (
    BadRequest,
    DeadlinePassed,
    EngineFailed,
    Overloaded,
    Overlong,
    PagesFailed,
    RequestError,
    UnknownTenant,
)
from engine_agent.engine.kv_pages import KvPages
from engine_agent.engine.model import Model
from engine_agent.engine.notices import Notices
from engine_agent.engine.request import Branch, Job, Request, Sink
from engine_agent.engine.runner import Computed, Runner, RunRow
from engine_agent.engine.sampler import Sampler, check_tokens
from engine_agent.engine.scheduler import Candidate, Turn, plan_step
from engine_agent.engine.settings import EngineSettings
from engine_agent.engine.shares import ComputeShares
from engine_agent.engine.stops import StopStrings
from engine_agent.engine.tenants import NOBODY, Tenants
from engine_agent.engine.tokenizer import Tokenizer
from engine_agent.engine.victims import Holder, victim
from engine_agent.engine.warming import PinWarming
from kernels.scales import ScaleSet

LOG = logging.getLogger(__name__)
LONGEST_SECONDS = 86_400.0
MOST_OVER = 64  # finished jobs that stay in the heap until their deadlines
LAST = 2**40  # after every priority: for the engine's own requests


@dataclass(frozen=True, slots=True)
class Parts:
    """The components of an engine, made by `engine_agent.backends.paged.opening`."""

    model: Model
    revision: str
    tokenizer: Tokenizer
    pages: KvPages
    scales: Mapping[str, ScaleSet]
    settings: EngineSettings
    context_tokens: int


@dataclass(frozen=True, slots=True)
class _Lane:
    """A branch with something to compute, and its request."""

    request: Request
    branch: Branch


class Engine:
    def __init__(self, parts: Parts, *, name: str, boot: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self.parts, self.boot = parts, boot
        self.manager = BlockManager(
            *parts.pages.storages, clock=clock, block_tokens=parts.settings.block_tokens, boot=boot
        )
        self.kv_formats = tuple(parts.pages.layouts)
        self.tenants = Tenants(self.manager, model=name, kv_formats=self.kv_formats)
        self.notices = Notices()
        self.is_draining = False
        self.steps = self.computed_tokens = self.preemptions = 0
        self._clock = clock
        self._digests = {kv_format: scale_set.digest for kv_format, scale_set in parts.scales.items()}
        self._runner = Runner(parts.model, parts.pages.arena, parts.pages.layouts, parts.scales)
        self._shares = ComputeShares()
        self._admissions = Admissions(
            self.manager,
            most_running=parts.settings.most_running,
            most_waiting=parts.settings.most_waiting,
            sequence=self._sequence,
            tenant=lambda request: self.tenants.known(request.namespace),
        )
        self.pins = PinWarming(
            self.manager,
            self.tenants,
            model_revision=parts.revision,
            scale_set=self._digests.__getitem__,
            submit=self.submit,
            clock=clock,
        )
        self._answering = Answering(eos_ids=parts.tokenizer.eos_ids, speak=parts.tokenizer.detokenizer)
        self._jobs: dict[Job, None] = {}
        self._ends: list[tuple[float, int, Job]] = []
        self._numbers = itertools.count()
        self._seat_given_at = -math.inf

    # Requests

    @property
    def has_work(self) -> bool:
        return bool(self._jobs)

    @property
    def running(self) -> Sequence[Request]:
        return list(self._admissions.running)

    @property
    def waiting(self) -> Sequence[Request]:
        return self._admissions.waiting_requests()

    @property
    def seats(self) -> int:
        """Return how many answers the engine computes at once."""
        return self.parts.settings.most_running

    def page_stats(self) -> Mapping[str, Any]:
        return self.parts.pages.stats()

    def seconds_behind(self) -> float:
        """Return how long the oldest waiting request has waited for blocks and a seat."""
        arrived = [request.arrived for request in self._admissions.waiting_requests()]
        return max(0.0, self._clock() - min(arrived)) if arrived else 0.0

    @property
    def generated_tokens(self) -> int:
        return self._answering.generated_tokens

    def submit(self, generate_request: Generate, sink: Sink) -> Job:
        """Accept a request. After a RequestError nothing of it remains."""
        if self.is_draining and generate_request.kind == "customer":
            raise Overloaded("", "the engine is being drained: try another one")
        if len(generate_request.prompts) > self.parts.settings.most_waiting:
            most_waiting = self.parts.settings.most_waiting
            raise BadRequest(
                "prompt", f"{len(generate_request.prompts)} prompts are more than may wait here, {most_waiting:,}"
            )
        now = self._clock()
        requested_seconds = (
            LONGEST_SECONDS if generate_request.deadline_seconds is None else generate_request.deadline_seconds
        )
        seconds = min(requested_seconds, LONGEST_SECONDS)
        job = Job(generate_request.request_id, generate_request.kind, sink, now + seconds)
        job.requests = [
            self._request(job, prompt_index, generate_request, now)
            for prompt_index in range(len(generate_request.prompts))
        ]
        try:
            for request in job.requests:
                self._admissions.enter(request)
        except RequestError:
            self._leave(job)
            raise
        self._jobs[job] = None
        heapq.heappush(self._ends, (job.ends_at, next(self._numbers), job))
        if len(self._ends) > 2 * len(self._jobs) + MOST_OVER:
            self._ends = [end for end in self._ends if not end[2].is_over]
            heapq.heapify(self._ends)
        return job

    def cancel(self, job: Job) -> None:
        """Release a request whose client has left: its blocks are free at once."""
        if not job.is_over:
            self._leave(job)

    def fail(self, job: Job, error: RequestError) -> None:
        if not job.is_over:
            self._leave(job)
            job.sink.failed(error)

    def fail_all(self, error: RequestError) -> None:
        for job in list(self._jobs):
            self.fail(job, error)

    def abandon(self, error: RequestError) -> None:
        """Fail all jobs at the end of the engine. No blocks are released, because the cache's state may be wrong."""
        for job in list(self._jobs):
            job.is_over = True
            job.sink.failed(error)
        self._jobs.clear()

    # The tenants

    def apply(self, update: Snapshot | Change) -> list[PurgeReceipt]:
        """Apply a snapshot or change between two steps, all or nothing.

        Raises RejectedSnapshot, HashMismatch, MalformedMessage.
        """
        receipts = self.tenants.apply(update)
        self.after_snapshot()
        return receipts

    def after_snapshot(self) -> None:
        """Update pins and waiting requests for the new snapshot. Running requests continue as they were admitted."""
        self.pins.settle()
        for request in self._admissions.waiting_requests():
            if request.admission is None and request.state == "waiting" and not request.job.is_over:
                self._obey_anew(request)

    def _obey_anew(self, request: Request) -> None:
        if self.tenants.known(request.namespace) is None:
            return  # the waiting room rejects it
        try:
            kv_format = self.tenants.tenant(request.namespace).kv_format(request.asked_format, self.kv_formats)
            if kv_format != request.kv_format:
                self._admissions.leave(request)
                request.kv_format = kv_format
                self._admissions.enter(request, is_known=True)
        except RequestError as problem:
            self.fail(request.job, problem)

    # Steps

    def step(self) -> int:
        """Run one step and return the number of computed tokens: 0 if none had tokens to compute or got blocks."""
        self._end_late()
        self.pins.warm()
        self._give_a_seat()
        for request, refusal in self._admissions.admit():
            if refusal is not None:
                self._refuse(request, refusal)
        self._run_pages()
        self._announce()
        turns = plan_step(
            self._candidates(), self._shares, self._weights(), budget_tokens=self.parts.settings.chunk_tokens
        )
        if not turns:
            return 0
        rows = [self._row(turn) for turn in turns]
        computed = self._runner.run(rows)
        self.steps += 1
        self.computed_tokens += sum(turn.tokens for turn in turns)
        self._take(turns, rows, computed)
        return sum(turn.tokens for turn in turns)

    def tick(self) -> int:
        """Handle timers without a step: expire blocks, zero purged pages, fail late requests."""
        self.manager.tick()
        self.pins.warm()
        self._end_late()
        self._run_pages()
        return 0

    def _run_pages(self) -> None:
        """Carry out the block manager's operations. Raises PagesFailed: the pages may differ from the cache's state."""
        try:
            self.parts.pages.run(self.manager.take_operations())
        except Exception as problem:
            raise PagesFailed("", f"the pages' bytes cannot be kept: {problem}") from problem

    def _refuse(self, request: Request, refusal: RequestError) -> None:
        """Refuse a request. If it has emitted tokens and there is no room for more, end its answers normally."""
        if request.admission is not None and isinstance(refusal, Overlong):
            for branch in request.live:
                self._end_branch(request, branch)
        else:
            self.fail(request.job, refusal)

    def _give_a_seat(self) -> None:
        """Give a seat to a namespace that runs nothing, by a preemption in the most crowded one for its weight."""
        now = self.manager.cache.now()
        name = self._admissions.without_a_seat(now)
        if name is None or now - self._seat_given_at < SEAT_SECONDS:  # it may lack memory as well
            return
        self._seat_given_at = now
        seats: dict[str, int] = {}
        for request in self._admissions.running:
            seats[request.namespace] = seats.get(request.namespace, 0) + request.seats
        crowded = {
            namespace: seat_count / self._weight(namespace) for namespace, seat_count in seats.items() if seat_count > 1
        }
        if not crowded:
            return
        most_crowded = max(crowded, key=lambda namespace: crowded[namespace])
        last = max(
            (candidate for candidate in self._admissions.running if candidate.namespace == most_crowded),
            key=lambda candidate: candidate.rank,
        )
        self._preempt(last, f"namespace {name} had no answer among those that run; raise --max-running")

    def _end_late(self) -> None:
        if not self._jobs:
            self._ends.clear()
        now = self._clock()
        while self._ends and (self._ends[0][0] <= now or self._ends[0][2].is_over):
            _, _, job = heapq.heappop(self._ends)
            self.fail(job, DeadlinePassed("", "the request's time is over"))

    def _announce(self) -> None:
        """Mark requests with all blocks loaded as ready.

        A block that was damaged on its way back from the host leaves the cache, and requests that use it are admitted
        again.
        """
        for loaded in self.parts.pages.finished_loads():
            if not loaded.is_sound:
                self._forget(loaded.kv_format, loaded.page)
        for request in [candidate for candidate in self._admissions.running if not candidate.is_ready]:
            sequence = request.live[0].sequence
            if sequence is None or not self.parts.pages.is_ready(sequence.pages, request.kv_format):
                continue
            admission = self._admissions.announce(request)
            if admission is not None:
                request.job.sink.admitted(request.place, admission)

    def _forget(self, kv_format: str, page: int) -> None:
        spoilt = set(self.manager.forget(kv_format, page))
        self.notices.add(
            "damaged_block", NOBODY, "a block came back damaged from the host's memory; it is computed again"
        )
        for request in list(self._admissions.running):
            if any(branch.sequence in spoilt for branch in request.branches):
                self._give_back(request)
                self._admissions.hold_back(request)

    def _candidates(self) -> list[Candidate[_Lane]]:
        return [
            Candidate(_Lane(request, branch), request.namespace, tokens, is_decode, request.rank)
            for request in self._admissions.running
            if request.is_ready
            for branch, tokens, is_decode in self._computable(request)
        ]

    def _computable(self, request: Request) -> list[tuple[Branch, int, bool]]:
        """Return branches with the number of tokens left to compute, and whether that is one new token of an answer.

        Beams are sampled together, so a beam ahead of the others leaves out its last token.
        """
        lanes = [branch for branch in request.live if branch.sequence]
        left_tokens = [branch.left_tokens for branch in lanes]
        is_together = request.search is None or not request.is_split or max(left_tokens) == 1
        computable = []
        for branch, tokens in zip(lanes, left_tokens, strict=True):
            assert branch.sequence is not None
            is_decode = tokens == 1 and branch.sequence.filled_tokens >= len(request.prompt)
            tokens -= 0 if is_together else 1
            if tokens:
                computable.append((branch, tokens, is_decode))
        return computable

    def _weights(self) -> dict[str, float]:
        return {request.namespace: self._weight(request.namespace) for request in self._admissions.running}

    def _weight(self, namespace: str) -> float:
        tenant = self.tenants.known(namespace)
        return tenant.policy.weight if tenant else 1.0

    def _row(self, turn: Turn[_Lane]) -> RunRow:
        request, sequence = turn.key.request, turn.key.branch.sequence
        assert sequence is not None
        begin = sequence.filled_tokens
        end = begin + turn.tokens
        is_decode = turn.tokens == 1 and begin >= len(request.prompt)
        offsets = self.parts.pages.offsets(sequence.pages, request.kv_format)
        row = BatchRow(request.kv_format, offsets, begin, end, is_decode)
        return RunRow(row, sequence.tokens[begin:end], wants_logits=end == len(sequence.tokens))

    # After the forward pass

    def _take(self, turns: Sequence[Turn[_Lane]], rows: Sequence[RunRow], computed: Computed) -> None:
        """Fill computed blocks, then sample, then grow, because growing may preempt another request."""
        ready: list[tuple[_Lane, int]] = []
        logits_rows = itertools.count()
        for row_index, (turn, row) in enumerate(zip(turns, rows, strict=True)):
            logits_row = next(logits_rows) if row.wants_logits else None
            lane = turn.key
            if lane.request.job.is_over:
                continue
            if row_index in computed.broken:
                self.fail(lane.request.job, not_finite())
                continue
            assert lane.branch.sequence is not None
            self.manager.fill(lane.branch.sequence, row.row.end)
            if logits_row is not None:
                ready.append((lane, logits_row))
        growing = self._draw([(lane, row) for lane, row in ready if not lane.request.job.is_over], computed.logits)
        for request, branch, tokens in sorted(growing, key=lambda growth: (growth[0].arrived, growth[0].place)):
            if branch.finish is None and branch.sequence is not None:
                self._grow(request, branch, tokens)

    def _draw(self, ready: list[tuple[_Lane, int]], logits: Tensor) -> list[tuple[Request, Branch, list[int]]]:
        """Sample the tokens for requests that need some, and return how each sequence must grow."""
        drawing: list[tuple[Request, Branch]] = []
        rows: list[int] = []
        beams: dict[Request, list[int]] = {}
        growing: list[tuple[Request, Branch, list[int]]] = []
        for lane, row in ready:
            request = lane.request
            if not request.most_tokens:
                self._finish(request)
            elif not request.is_split and any(branch.generated for branch in request.live):
                growing += [(request, branch, branch.generated) for branch in self._split(request)]
            elif request.search is not None:
                beams.setdefault(request, []).append(row)
            else:
                branches = [lane.branch] if request.is_split else self._split(request)
                drawing += [(request, branch) for branch in branches]
                rows += [row] * len(branches)
        for request, of_beams in beams.items():
            growing += self._advance(request, logits[of_beams])
        return growing + self._sample(drawing, logits, rows)

    def _sample(
        self, drawing: list[tuple[Request, Branch]], logits: Tensor, rows: list[int]
    ) -> list[tuple[Request, Branch, list[int]]]:
        growing: list[tuple[Request, Branch, list[int]]] = []
        for (request, branch), sampled in zip(drawing, self._answering.sample(drawing, logits, rows), strict=True):
            if request.job.is_over:
                continue
            if sampled is None:
                self.fail(request.job, not_finite())
                continue
            self._answering.take(request, branch, sampled)
            if branch.finish is None:
                growing.append((request, branch, [sampled.token]))
            else:
                self._finish_branch(request, branch)
        return growing

    def _split(self, request: Request) -> list[Branch]:
        """Give each live branch its own sequence with the same past. Pages are shared until a branch writes."""
        first = next(branch for branch in request.live if branch.sequence)
        assert first.sequence is not None
        for branch in request.live:
            if branch.sequence is None:
                branch.sequence = self.manager.fork(first.sequence)
        return request.live

    def _advance(self, request: Request, logits: Tensor) -> list[tuple[Request, Branch, list[int]]]:
        """Run one step of a beam search. Beams without a continuation end, beams with several are copied."""
        assert request.search is not None
        try:
            steps = request.search.advance(logits)
        except EngineFailed as problem:
            self.fail(request.job, problem)
            return []
        if not steps:
            self._answering.say_beams(request)
            self._finish(request)
            return []
        return [(request, branch, [step.token]) for branch, step in zip(*self._rebranch(request, steps), strict=True)]

    def _rebranch(self, request: Request, steps: list[Step]) -> tuple[list[Branch], list[Step]]:
        parents = [branch for branch in request.live if branch.sequence]
        continued_parents: set[int] = set()
        branches = []
        for number, step in enumerate(steps):
            parent = parents[step.parent]
            assert parent.sequence is not None
            sequence = parent.sequence if step.parent not in continued_parents else self.manager.fork(parent.sequence)
            continued_parents.add(step.parent)
            branches.append(self._branch(request, number, sequence, [*parent.generated, step.token]))
        for number, parent in enumerate(parents):
            if number not in continued_parents and parent.sequence:
                self.manager.release(parent.sequence)
        request.branches = branches
        return branches, steps

    def _grow(self, request: Request, branch: Branch, tokens: list[int]) -> None:
        """Allocate blocks for new tokens. If necessary, `victims.py` chooses a request to preempt, perhaps this one."""
        while branch.sequence is not None:
            try:
                answer = self.manager.grow(branch.sequence, tokens)
            except NeverFits:
                self._end_branch(request, branch)
                return
            if answer is None:
                return
            self._make_room(request, branch, answer)

    def _make_room(self, request: Request, branch: Branch, deferred: Deferred) -> None:
        """Preempt a request, or end this answer if it runs alone or could never return."""
        running = self._admissions.running
        holders = {running_request: self._holder(running_request) for running_request in running}
        chosen = victim(holders.values(), holders[request], is_own_limit=deferred.reason == "limit").key
        assert branch.sequence is not None
        if len(running) == 1 or (chosen is request and not self._admissions.can_return(request, branch.sequence.owner)):
            self.notices.add("answer_cut", request.namespace, "an answer ended early: there is no block left for it")
            self._end_branch(request, branch)
            return
        cause = "the limit_share of its namespace" if deferred.reason == "limit" else "the pool (--pool)"
        missing = f"{deferred.missing_bytes:,} bytes were missing for request {request.job.request_id}"
        self._preempt(chosen, f"{missing}; raise {cause} or run fewer at once (--max-running)")

    def _preempt(self, request: Request, reason: str) -> None:
        self._give_back(request)
        request.preemptions += 1
        self.preemptions += 1
        self._admissions.hold_back(request)
        self.notices.add(
            "preemption", request.namespace, f"request {request.job.request_id} is computed again later: {reason}"
        )

    def _give_back(self, request: Request) -> None:
        for branch in request.branches:
            if branch.sequence is not None:
                self.manager.release(branch.sequence)
                branch.sequence = None

    def _holder(self, request: Request) -> Holder[Request]:
        owner = next(branch.sequence for branch in request.branches if branch.sequence).owner
        account = owner.accounts[DEVICE]
        return Holder(
            request,
            request.namespace,
            request.is_counted,
            request.rank,
            account.resident_bytes - account.idle_bytes,
            account.shares.reserved_bytes,
            account.shares.weight,
        )

    # Ends

    def _end_branch(self, request: Request, branch: Branch) -> None:
        """End a branch that cannot continue, with the tokens it has."""
        if branch.finish is not None:
            return
        if request.search is not None:
            self._answering.say_beams(request)
            self._finish(request)
            return
        self._answering.end(request, branch, "length")
        self._finish_branch(request, branch)

    def _finish_branch(self, request: Request, branch: Branch) -> None:
        if branch.sequence is not None:
            self.manager.release(branch.sequence)
            branch.sequence = None
        if not request.live:
            self._finish(request)

    def _finish(self, request: Request) -> None:
        self._release(request)
        if all(sibling.state == "done" for sibling in request.job.requests):
            self._leave(request.job)
            request.job.sink.finished()

    def _release(self, request: Request) -> None:
        request.state = "done"
        self._admissions.leave(request)
        self._give_back(request)
        for branch in request.branches:
            branch.finish = branch.finish or "cancelled"

    def _leave(self, job: Job) -> None:
        job.is_over = True
        self._jobs.pop(job, None)
        for request in job.requests:
            if request.state != "done":
                self._release(request)

    # Making requests

    def _request(self, job: Job, prompt_index: int, generate_request: Generate, now: float) -> Request:
        tenant = self.tenants.tenant(generate_request.namespace)
        prompt, params = generate_request.prompts[prompt_index], generate_request.sampling
        kv_format = tenant.kv_format(generate_request.kv_dtype, self.kv_formats)
        self._prompt_checked(prompt)
        check_tokens(params, self.parts.model.config.vocab_size)
        if params.n > self.parts.settings.most_running:
            raise BadRequest(
                "n", f"{params.n} answers are more than run here at once, {self.parts.settings.most_running}"
            )
        room = self.parts.context_tokens - len(prompt)
        if (params.max_tokens or 1) > room:
            raise Overlong(
                "max_tokens" if room > 0 else "prompt",
                f"{len(prompt):,} tokens of prompt and {params.max_tokens or 1:,} of answer are more than the model's "
                f"context of {self.parts.context_tokens:,}",
            )
        request = Request(
            job=job,
            place=prompt_index,
            namespace=generate_request.namespace,
            prompt=prompt,
            kv_format=kv_format,
            asked_format=generate_request.kv_dtype,
            salt=generate_request.cache_salt,
            ttl_seconds=generate_request.ttl_seconds,
            params=params,
            most_tokens=0
            if generate_request.kind == "pin"
            else params.max_tokens or self._room(generate_request, kv_format, room),
            priority=generate_request.priority if generate_request.kind == "customer" else LAST,
            arrived=now,
            elsewhere_tokens=0 if prompt_index else generate_request.elsewhere_tokens,
            branches=[],
        )
        if params.beam is not None:
            request.search = BeamSearch(
                params,
                vocab_size=self.parts.model.config.vocab_size,
                eos_ids=self.parts.tokenizer.eos_ids,
                max_tokens=request.most_tokens,
            )
        count = 1 if request.search else params.n
        request.branches = [self._branch(request, number, None, []) for number in range(count)]
        return request

    def _room(self, generate_request: Generate, kv_format: str, room: int) -> int:
        """Return how long an answer without `max_tokens` may become, limited by context, pool and namespace."""
        storage = self.manager.cache.books.device.storage
        limit_bytes = self.manager.cache.namespace(generate_request.namespace).accounts[DEVICE].shares.limit_bytes
        pages = min(storage.most_pages(kv_format), limit_bytes // storage.page_bytes(kv_format))
        longest = max(len(prompt) for prompt in generate_request.prompts)
        answer_tokens = pages * self.parts.settings.block_tokens - longest
        return max(1, min(room, answer_tokens // generate_request.sampling.n))

    def _branch(self, request: Request, number: int, sequence: BlockSequence | None, generated: list[int]) -> Branch:
        params, tokenizer = request.params, self.parts.tokenizer
        sampler = Sampler(
            params,
            request.prompt,
            vocab_size=self.parts.model.config.vocab_size,
            eos_ids=tokenizer.eos_ids,
            index=number,  # not the prompt's position: a seed gives the same tokens for a prompt at any position
        )
        text = tokenizer.detokenizer(params.skip_special_tokens)
        return Branch(number, sampler, text, StopStrings(params.stop, include=params.include_stop), generated, sequence)

    def _prompt_checked(self, prompt: Sequence[int]) -> None:
        context, vocabulary = self.parts.context_tokens, self.parts.model.config.vocab_size
        check_prompt(prompt, context_tokens=context, vocab_size=vocabulary)

    def _sequence(self, request: Request, generated_tokens: list[int]) -> BlockSequence:
        try:
            return self.manager.sequence(
                request.namespace,
                [*request.prompt, *generated_tokens],
                kv_format=request.kv_format,
                model_revision=self.parts.revision,
                scale_set=self._digests[request.kv_format],
                salt=request.salt,
                ttl_seconds=request.ttl_seconds,
            )
        except UnknownNamespace as problem:
            raise UnknownTenant("", f"the namespace is gone: {problem}") from problem
        except CacheError as problem:
            raise BadRequest(problem.field, str(problem.message)) from problem
