"""Calls of our server and of operators into vLLM's engine process, between two of its steps. Imports vLLM.

`register` (`plugin.py`) gives `EngineCore` the method `luminet(verb, ...)`; vLLM calls it in its own loop, so nothing
here needs a lock.
"""

import itertools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Thread
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.request import Request

from engine_agent.backends.block_pages import answered
from engine_agent.backends.vllm.asked import FIELD, Asked, admission_packed
from engine_agent.backends.vllm.named import Namespaces, named_snapshot, purged_snapshot
from engine_agent.backends.vllm.scheduling import PolicyScheduling
from engine_agent.backends.vllm.telling import error_packed, found_packed, load_packed, question_unpacked
from engine_agent.backends.vllm.zeroing import zero_worker_pages
from engine_agent.cache.manager import BlockManager
from engine_agent.cache.operations import Zero
from engine_agent.cache.prefixes import PurgeReceipt
from engine_agent.contracts.protocol import Change, Snapshot, news_decode
from engine_agent.engine.asked import Generate
from engine_agent.engine.errors import BadRequest, Overloaded, RequestError
from engine_agent.engine.foretelling import Foreteller, foretellers
from engine_agent.engine.notices import Notices
from engine_agent.engine.outputs import Admission
from engine_agent.engine.reporting import (
    engine_brief,
    engine_events,
    engine_levels,
    engine_load,
    engine_stats,
    receipt,
)
from engine_agent.engine.tenants import Tenants
from engine_agent.engine.warming import PinWarming, Warmed

LOG = logging.getLogger("luminet.vllm")
PARENT_SECONDS = 0.5  # between two checks whether the parent process exists
INTERNAL = "luminet/internal"  # cannot be a client's id, which ends with a slash and a number


@dataclass(frozen=True, slots=True)
class _Counted:
    """A vLLM request as reports count it."""

    namespace: str
    live: Sequence[object] = (None,)


class VllmCore:
    """vLLM's engine for reports (`reporting.Reported`) and for all calls to it."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._scheduler: PolicyScheduling = core.scheduler
        governor = self._governor = self._scheduler.governor
        self.boot: str = governor.setup.boot
        self.manager: BlockManager = governor.manager
        self.tenants: Tenants = governor.tenants
        self.notices: Notices = governor.notices
        self.kv_formats: Sequence[str] = governor.setup.kv_formats
        self.is_draining = False
        self.steps = self.computed_tokens = self.generated_tokens = 0
        self.pins = PinWarming(
            self.manager,
            self.tenants,
            model_revision=governor.setup.revision,
            scale_set=lambda kv_format: "",
            submit=self._submit_pin,
            clock=time.monotonic,
        )
        self.pins.admitted = self._pin_admitted
        self._warming: dict[str, Warmed] = {}
        self._numbers = itertools.count()
        self._receipts: list[Mapping[str, Any]] = []
        self._zeroed_pages = self._zeroed_bytes = 0
        self._beside = ThreadPoolExecutor(1, "luminet-foretelling")
        self._scheduler.on_step = self._step
        self._scheduler.on_scheduled = self._zero
        self._scheduler.on_admitted = self._admitted
        self._scheduler.on_refused = self._refused
        self._scheduler.on_finished = self._finished
        if hasattr(core, "output_queue"):
            self._scheduler.tell = self._tell
            Thread(target=_end_with, args=(os.getppid(),), name="luminet-parent", daemon=True).start()
        core.request_block_hasher = None  # vLLM's own block hashes are not used

    # For reports

    @property
    def running(self) -> Sequence[_Counted]:
        return [self._counted(request) for request in self._scheduler.running]

    @property
    def waiting(self) -> Sequence[_Counted]:
        return [self._counted(request) for request in self._scheduler.waiting]

    @property
    def preemptions(self) -> int:
        return self._scheduler.preemptions

    @property
    def seats(self) -> int:
        return int(self._scheduler.max_num_active_reqs)

    def page_stats(self) -> Mapping[str, Any]:
        return {"zeroed_pages": self._zeroed_pages, "zeroed_bytes": self._zeroed_bytes}

    def seconds_behind(self) -> float:
        since = [waits for _, waits in self._governor.room.waits()]
        return max(0.0, self.manager.cache.now() - min(since)) if since else 0.0

    # Calls

    def ask(self, verb: str, *arguments: Any) -> Any:
        """Return `{"ok": …}` or `{"error": […]}`. vLLM reports and logs unexpected errors itself."""
        verbs: Mapping[str, Callable[..., Any]] = {
            "adopt": self._adopt,
            "apply": self._apply,
            "attention_error": self._attention_error,
            "brief": lambda: engine_brief(self),
            "drain": self._drain,
            "events": lambda since, boot: engine_events(self, since, boot),
            "foretell": self._foretell,
            "govern": self._govern,
            "integrity": self.manager.check_integrity,
            "levels": lambda: engine_levels(self),
            "look": self._look,
            "pin_content": self._set_pin_content,
            "pins": self.pins.status,
            "purge": self._purge,
            "receipts": self._take_receipts,
            "stats": self._stats,
            "tick": self._tick,
        }
        try:
            answer = verbs[verb](*arguments)
        except Exception as error:
            packed_error = error_packed(error)
            if packed_error is None:
                raise
            return {"error": packed_error}
        return answer if isinstance(answer, Future) else {"ok": answer}

    def _adopt(self, secret: str, namespaces: Namespaces) -> str:
        """Register a start of vLLM's own server. `namespaces`: for an engine that has none yet."""
        self._governor.adopt(secret)
        return self._govern(namespaces) if not self.tenants.snapshot.entries else self.tenants.snapshot.hash

    def _govern(self, namespaces: Namespaces) -> str:
        return self._obey(named_snapshot(self.tenants.snapshot, namespaces, kv_formats=self.kv_formats))

    def _purge(self, namespaces: list[str]) -> str:
        return self._obey(purged_snapshot(self.tenants.snapshot, namespaces))

    def _apply(self, message: bytes) -> str:
        return self._obey(news_decode(bytes(message)))

    def _obey(self, update: Snapshot | Change) -> str:
        receipts = self.tenants.apply(update)
        self._keep(receipts)
        self._zero()
        self.pins.settle()
        self._warm()
        return self.tenants.snapshot.hash

    def _attention_error(self) -> float:
        """Return the largest error of its workers. Raises BadRequest."""
        if self.steps:
            raise BadRequest("", "attention is tested before anything is computed: it writes where requests do")
        return max(
            float(worker_error) for worker_error in self._core.model_executor.collective_rpc("luminet_attention_error")
        )

    def _set_pin_content(self, pin_id: str, tokens: list[int]) -> None:
        if pin_id not in self.tenants.pins:
            raise BadRequest("pin", f"{pin_id!r} is no pin of this engine's snapshot")
        self.pins.set_content(pin_id, tokens)
        self._warm()

    def _take_receipts(self) -> list[Mapping[str, Any]]:
        self._zero()
        self._keep(self.manager.take_receipts())
        receipts, self._receipts = self._receipts, []
        return receipts

    def _stats(self) -> Mapping[str, Any]:
        self._scheduler.kv_cache_manager.catch_up(self._scheduler.running)
        return engine_stats(self)

    def _drain(self, is_draining: bool) -> int:
        self.is_draining = is_draining
        return len(self._scheduler.running) + len(self._scheduler.waiting)

    def _look(self, question: Any) -> list[Any]:
        self.manager.tick()
        unpacked_question = question_unpacked(question)
        changes = None if unpacked_question is None else answered(self.manager.events, unpacked_question)
        return [found_packed(changes), load_packed(engine_load(self))]

    def _foretell(self, namespaces: list[str]) -> "Future[Any]":
        """Compute forecasts outside vLLM's loop, because they take long."""
        foretellers_by_namespace = foretellers(self.manager, namespaces)
        return self._beside.submit(_told, foretellers_by_namespace)

    def _tick(self) -> None:
        self.manager.tick()
        self._zero()
        self._warm()

    # Internal events

    def _step(self) -> None:
        self.steps += 1
        self.pins.warm()

    def _warm(self) -> None:
        self.pins.warm()

    def _zero(self) -> None:
        """Zero purged pages in the workers' memory.

        This runs after a step is planned, which may free pages and reassign them at once, and before it is computed, so
        that no other request has written to them yet.
        """
        pages = [
            page
            for operation in self.manager.take_operations()
            if isinstance(operation, Zero)
            for page in operation.pages
        ]
        if pages:
            blocks = self._scheduler.kv_cache_config.num_blocks
            zeroed = self._core.model_executor.collective_rpc(zero_worker_pages, args=(pages, blocks))
            self._zeroed_pages += len(pages)
            self._zeroed_bytes += sum(zeroed)

    def _keep(self, receipts: Sequence[PurgeReceipt]) -> None:
        self._receipts += [receipt(purge, time.time()) for purge in receipts]

    def _submit_pin(self, request: Generate, sink: Warmed) -> None:
        if self.is_draining:
            raise Overloaded("", "the engine is being drained")
        request_id = f"{INTERNAL} pin {next(self._numbers)}"
        params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
        params.extra_args = Asked(request.namespace, kind="pin").packed()
        self._warming[request_id] = sink
        self._core.add_request(Request(request_id, list(request.prompts[0]), params, None))

    def _pin_admitted(self, namespace: str, admission: Admission) -> None:
        transfer_params = {FIELD: {"internal": ["pin", namespace, admission_packed(admission)]}}
        self._scheduler.tell(0, [EngineCoreOutput(INTERNAL, [], kv_transfer_params=transfer_params)])

    def _admitted(self, request: Request, admission: Admission) -> None:
        if sink := self._warming.get(request.request_id):
            sink.admitted(0, admission)

    def _refused(self, request: Request, error: RequestError) -> None:
        if sink := self._warming.pop(request.request_id, None):
            sink.failed(error)

    def _finished(self, request: Request) -> None:
        self.computed_tokens += request.num_computed_tokens
        self.generated_tokens += request.num_output_tokens
        if sink := self._warming.pop(request.request_id, None):
            sink.finished()

    def _tell(self, client: int, outputs: list[EngineCoreOutput]) -> None:
        self._core.output_queue.put_nowait((client, EngineCoreOutputs(outputs=outputs)))

    def _counted(self, request: Request) -> _Counted:
        return _Counted(self._scheduler.namespace_of(request))


def _end_with(parent: int) -> None:
    """End this process after its parent has ended, since nothing could call it any more."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    LOG.error("the process that started this engine is gone, so it ends")
    os._exit(1)


def _told(foretellers_by_namespace: Mapping[str, Foreteller]) -> Any:
    return {"ok": {name: foreteller.told() for name, foreteller in foretellers_by_namespace.items()}}
