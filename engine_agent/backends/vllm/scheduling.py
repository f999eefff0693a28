"""Policies in vLLM's scheduler; `scheduler` has the classes that vLLM starts with. Imports vLLM.

vLLM still decides what a step computes. The same code as in our own engine decides which requests are admitted, with
which blocks, and which are preempted.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.request import Request, RequestStatus

from engine_agent.backends.vllm.admission_queue import AdmissionQueue
from engine_agent.backends.vllm.asked import FIELD, Asked, admission_packed
from engine_agent.backends.vllm.formats import served_names
from engine_agent.backends.vllm.governor import Governor, Setup
from engine_agent.backends.vllm.kv_manager import PolicyKVCacheManager, UnsupportedModel, flat_pages
from engine_agent.cache.books import DEVICE
from engine_agent.cache.errors import CacheError, InvalidValue, NeverFits
from engine_agent.cache.manager import Admitted, Deferred
from engine_agent.cache.sequences import Sequence
from engine_agent.engine.admissions import PATIENCE_SECONDS, can_return, may_return, refusal
from engine_agent.engine.errors import BadRequest, RequestError
from engine_agent.engine.outputs import Admission
from engine_agent.engine.victims import Holder, victim

LAST = 2**40  # after every priority: for the engine's own requests
Tell = Callable[[int, list[EngineCoreOutput]], None]


@dataclass(slots=True)
class _Known:
    """Our data about a request, in addition to vLLM's own."""

    asked: Asked
    since: float  # by the manager's clock
    admission: Admission | None = None
    held_since: float = 0.0


class PolicyScheduling(Scheduler):  # type: ignore[misc]
    clock: ClassVar[Callable[[], float]] = time.monotonic
    kv_cache_manager: PolicyKVCacheManager

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refuse_what_is_unsupported()
        names = served_names(self.vllm_config)
        served = self.vllm_config.model_config.served_model_name or "model"
        default_setup = Setup(model=served, kv_formats=names, is_stock=True)
        setup = Setup.unpacked(self.vllm_config.additional_config, default_setup)
        pages = flat_pages(self.kv_cache_manager, setup.kv_formats)
        self.governor = Governor(pages, setup, block_tokens=self.block_size, clock=type(self).clock)
        self.kv_cache_manager = PolicyKVCacheManager(self.kv_cache_manager, self.governor.manager)
        self.kv_cache_manager.make_room, self.kv_cache_manager.cut = self._make_room, self._cut_in_step
        self.waiting = AdmissionQueue(
            self.governor.room,
            free_seats=lambda: self.max_num_active_reqs - len(self.running),
            enter=self._enter,
            admitted=self._admit,
            refused=self._refuse,
        )
        self.tell: Tell = self._keep
        self.on_step: Callable[[], None] = lambda: None
        self.on_scheduled: Callable[[], None] = lambda: None  # before the computation
        self.on_admitted: Callable[[Request, Admission], None] = lambda request, admission: None
        self.on_refused: Callable[[Request, RequestError], None] = lambda request, error: None
        self.on_finished: Callable[[Request], None] = lambda request: None
        self.preemptions = 0
        self._known: dict[str, _Known] = {}
        self._ends: list[tuple[Request, RequestStatus, EngineCoreOutput]] = []
        self._kept: list[tuple[int, EngineCoreOutput]] = []

    def _refuse_what_is_unsupported(self) -> None:
        if self.connector is not None or self.ec_connector is not None:
            raise UnsupportedModel("KV connectors and native offload know nothing of policies: leave them out")
        if self.policy != SchedulingPolicy.FCFS:
            raise UnsupportedModel("priorities are within a namespace here: leave --scheduling-policy out")
        if self.num_spec_tokens:
            raise UnsupportedModel("speculative decoding was not tested under policies: leave it out")
        if self.dcp_world_size > 1:
            raise UnsupportedModel("decode context parallelism was not tested under policies: leave it out")

    # vLLM's methods with our additions

    def add_request(self, request: Request) -> None:
        super().add_request(request)
        self._end()

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        self._end()
        self.on_step()
        self.waiting.let_return(self._may_return)
        output: SchedulerOutput = super().schedule(*args, **kwargs)
        self.on_scheduled()
        return output

    def get_num_unfinished_requests(self) -> int:
        """Return the count including requests that end between two steps, so that vLLM runs a step to report them."""
        return int(super().get_num_unfinished_requests()) + len(self._ends)

    def update_from_output(self, *args: Any, **kwargs: Any) -> dict[int, EngineCoreOutputs]:
        outputs_by_client: dict[int, EngineCoreOutputs] = super().update_from_output(*args, **kwargs)
        pending_outputs, self._kept = self._kept, []
        for client, output in pending_outputs:
            outputs_by_client.setdefault(client, EngineCoreOutputs()).outputs.append(output)
        return outputs_by_client

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        transfer_params = super()._free_request(request, *args, **kwargs)
        self._known.pop(request.request_id, None)
        self.on_finished(request)
        return transfer_params

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super()._preempt_request(request, *args, **kwargs)
        self._known[request.request_id].held_since = self.governor.manager.cache.now()
        # The blocks of a request that was cut are freed this way, and it never returns.
        is_cut = any(request is ended for ended, _, _ in self._ends)
        self.preemptions += not is_cut

    def namespace_of(self, request: Request) -> str:
        state = self._known.get(request.request_id)
        return state.asked.namespace if state else ""

    # Admission

    def _enter(self, request: Request) -> Sequence | None:
        """Put a request into its namespace's line."""
        governor, request_id = self.governor, request.request_id
        try:
            state = self._known.get(request_id) or self._remember(request)
            sequence = self._sequence(state.asked, request)
            request.cache_salt = sequence.chain.root.hex()  # replaces any value: keyed, by namespace and epoch
            is_customer = state.asked.kind in ("customer", "sibling")
            remaining_tokens = (
                state.asked.room_for_tokens - request.num_output_tokens if not request.num_preemptions else 0
            )
            governor.room.submit(
                sequence,
                room_for_tokens=max(0, remaining_tokens),
                counted=False,
                priority=request.priority if is_customer else LAST,
                since=state.since,
                may_admit=False,
                seats=0 if state.asked.kind == "probe" else 1,
                is_returning=request.num_preemptions > 0,
                is_patient=not is_customer,
            )
        except (CacheError, RequestError) as problem:
            self._refuse(request, problem)
            return None
        return sequence

    def _remember(self, request: Request) -> _Known:
        params = request.sampling_params
        fields = self.governor.asked(params.extra_args if params else None)
        state = self._known[request.request_id] = _Known(fields, self.governor.manager.cache.now())
        return state

    def _sequence(self, fields: Asked, request: Request) -> Sequence:
        salt_suffix = f"lora:{request.lora_request.lora_name}" if request.lora_request else ""
        is_private = bool(request.skip_reading_prefix_cache or request.mm_features or request.prompt_embeds is not None)
        return self.governor.sequence(fields, request.all_token_ids[:], apart=salt_suffix, is_private=is_private)

    def _admit(self, request: Request, sequence: Sequence, answer: Admitted) -> None:
        """Fix the request's counts and report them before anything of it is computed."""
        self.kv_cache_manager.sequences[request.request_id] = sequence
        state = self._known[request.request_id]
        if state.admission is not None:
            return
        if state.asked.kind == "customer":
            self.governor.manager.count(sequence)
        state.admission = self.governor.admission(state.asked, sequence, answer)
        self.on_admitted(request, state.admission)
        if state.asked.is_told:
            transfer_params = {FIELD: {"admission": admission_packed(state.admission)}}
            self.tell(
                request.client_index, [EngineCoreOutput(request.request_id, [], kv_transfer_params=transfer_params)]
            )

    def _refuse(self, request: Request, problem: CacheError | RequestError) -> None:
        """Refuse a request. If it has output and there is no room for more, end it normally."""
        if request.num_output_tokens and isinstance(problem, NeverFits):
            self._cut(request)
            return
        error = problem if isinstance(problem, RequestError) else self._refusal(request, problem)
        self.on_refused(request, error)
        transfer_params = {FIELD: {"refused": [type(error).__name__, error.field, error.problem]}}
        output = EngineCoreOutput(
            request.request_id, [], finish_reason=FinishReason.ERROR, kv_transfer_params=transfer_params
        )
        self._ends.append((request, RequestStatus.FINISHED_ERROR, output))

    def _refusal(self, request: Request, problem: CacheError) -> RequestError:
        if isinstance(problem, InvalidValue):
            return BadRequest(problem.field, problem.message)
        is_bounded = self._known[request.request_id].asked.room_for_tokens > 0
        return refusal(problem, prompt_tokens=request.num_prompt_tokens, is_bounded=is_bounded)

    # Preemption

    def _make_room(self, request: Request, deferred: Deferred) -> None:
        """Move the request to preempt to the end of vLLM's list, from where vLLM takes blocks.

        Only requests that this step has not reached are eligible. If this one is chosen and runs alone, or could never
        return, it ends.
        """
        position = self.running.index(request)
        holders = {
            running_request.request_id: self._holder(running_request) for running_request in self.running[position:]
        }
        requester = holders[request.request_id]
        chosen = victim(holders.values(), requester, is_own_limit=deferred.reason == "limit").key
        namespace = requester.namespace
        if chosen is request and (len(self.running) == 1 or not self._can_return(request)):
            self.governor.notices.add("answer_cut", namespace, "an answer ended early: there is no block left for it")
            self._cut(request)
        else:
            cause = "the limit_share of its namespace" if deferred.reason == "limit" else "the pool"
            missing = f"{deferred.missing_bytes:,} bytes were missing for request {request.request_id}"
            notice = f"request {chosen.request_id} is computed again later: {missing}; raise {cause}"
            self.governor.notices.add("preemption", self._known[chosen.request_id].asked.namespace, notice)
        self._put_last(chosen)

    def _cut_in_step(self, request: Request) -> None:
        """End the request and free its own blocks; no other is preempted for it."""
        self._cut(request)
        if request in self.running:
            self._put_last(request)

    def _put_last(self, request: Request) -> None:
        self.running.remove(request)
        self.running.append(request)

    def _holder(self, request: Request) -> Holder[Request]:
        state, sequence = self._known[request.request_id], self.kv_cache_manager.sequences[request.request_id]
        account = sequence.owner.accounts[DEVICE]
        is_customer = state.asked.kind in ("customer", "sibling")
        return Holder(
            request,
            sequence.namespace,
            is_customer,
            (request.priority if is_customer else LAST, state.since),
            account.resident_bytes - account.idle_bytes,
            account.shares.reserved_bytes,
            account.shares.weight,
        )

    def _can_return(self, request: Request) -> bool:
        """Return whether the blocks that a request needs by now could ever be available again."""
        owner = self.kv_cache_manager.sequences[request.request_id].owner
        return can_return(self.governor.manager, owner, self._bytes(self._blocks(request)))

    def _may_return(self, request: Request) -> bool:
        """Return whether a returning request would leave running ones the blocks they need next."""
        manager, state = self.governor.manager, self._known[request.request_id]
        if not self.running or manager.cache.now() - state.held_since >= PATIENCE_SECONDS:
            return True
        namespace = state.asked.namespace
        if self.governor.tenants.known(namespace) is None:
            return True
        runs_own = any(self.namespace_of(running_request) == namespace for running_request in self.running)
        need_bytes = self._bytes(self._blocks(request) + len(self.running))
        return may_return(manager, manager.cache.namespace(namespace), need_bytes, runs_own=runs_own)

    def _blocks(self, request: Request) -> int:
        """Return how many blocks a request needs for all its tokens and the next one."""
        return -(-(int(request.num_tokens) + 1) // self.governor.manager.cache.block_tokens)

    def _bytes(self, blocks: int) -> int:
        return blocks * self.governor.manager.page_bytes(self.governor.setup.kv_formats[0])

    def _cut(self, request: Request) -> None:
        output = EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.LENGTH)
        self._ends.append((request, RequestStatus.FINISHED_LENGTH_CAPPED, output))

    def _end(self) -> None:
        """End requests that cannot continue, between two steps, when they are not being computed."""
        ends, self._ends = self._ends, []
        for request, status, output in ends:
            if self.finish_requests(request.request_id, status):
                self.tell(request.client_index, [output])

    def _keep(self, client: int, outputs: list[EngineCoreOutput]) -> None:
        self._kept += [(client, output) for output in outputs]
