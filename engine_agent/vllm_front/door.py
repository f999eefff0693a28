"""The point between vLLM's server and its engine that each request passes. It writes the caller into the request, over
anything a client wrote there, and removes the engine's reports from the output. It uses only methods of vLLM's client.
"""

import hmac
import secrets
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any
from weakref import WeakValueDictionary

from engine_agent.backends.vllm.asked import FIELD, Asked, admission_unpacked
from engine_agent.backends.vllm.telling import error_unpacked, request_error
from engine_agent.engine.errors import EngineFailed
from engine_agent.server.errors import api_error
from engine_agent.vllm_front.ask import CURRENT, Ask

KV_TRANSFER = "kv_transfer_params"  # a client's value would make vLLM report hits that did not happen


class EngineDoor:
    def __init__(self, client: Any) -> None:
        """Replace methods of `client`, vLLM's `AsyncLLM`."""
        self.secret = secrets.token_hex(32)
        self._core = client.engine_core
        self._asks: WeakValueDictionary[str, Ask] = WeakValueDictionary()  # asks by prompt, until its hits are reported
        self._siblings: WeakValueDictionary[str, Ask] = WeakValueDictionary()  # asks by further choice of a prompt
        self._generate, self._add, self._send = client.generate, client.add_request, self._core.add_request_async
        client.generate, client.add_request, self._core.add_request_async = self._generated, self._added, self._sent
        # Not the engine client's methods: vLLM is already waiting inside those, so that replacing them has no effect.
        outputs = client.output_processor
        self._process, self._propagate = outputs.process_outputs, outputs.propagate_error
        outputs.process_outputs, outputs.propagate_error = self._processed, self._propagated
        self._abort, self._under_way = outputs.abort_requests, outputs.request_states
        outputs.abort_requests = self._aborted

    async def ask(self, verb: str, *arguments: Any) -> Any:
        """Call the engine between two of its steps. Raise the error that it returns."""
        answer = await self._core.call_utility_async("luminet", verb, list(arguments))
        if "error" in answer:
            raise error_unpacked(answer["error"])
        return answer["ok"]

    def _generated(self, *args: Any, **kwargs: Any) -> Any:
        """Expect a prompt. vLLM calls this for each prompt before it waits for the first token of any."""
        if ask := CURRENT.get():
            ask.expect()
        return self._generate(*args, **kwargs)

    async def _added(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await self._add(*args, **kwargs)
        except BaseException:
            if ask := CURRENT.get():
                ask.settle()
            raise

    async def _sent(self, request: Any) -> None:
        ask = CURRENT.get()
        if request.sampling_params is not None:
            request.sampling_params = self._params(request, ask)
        namespace = ask.caller.namespace if ask else ""
        salted = f"{namespace}\0{request.cache_salt or ''}".encode()
        request.cache_salt = hmac.digest(self.secret.encode(), salted, "sha256").hex()
        await self._send(request)

    def _params(self, request: Any, ask: Ask | None) -> Any:
        """Return a copy with our fields: further choices of a prompt share the original."""
        params = copy(request.sampling_params)
        extra = {name: value for name, value in (params.extra_args or {}).items() if name not in (FIELD, KV_TRANSFER)}
        params.extra_args = {**extra, **(self._asked(request, ask) if ask else {})}
        return params

    def _asked(self, request: Any, ask: Ask) -> Mapping[str, Any]:
        caller, is_first = ask.caller, ask.is_first(request.external_req_id or request.request_id)
        (self._asks if is_first else self._siblings)[request.request_id] = ask
        return Asked(
            caller.namespace,
            salt=(request.cache_salt or "").encode().hex(),
            kind=caller.kind if is_first or caller.kind != "customer" else "sibling",
            elsewhere_tokens=caller.elsewhere_tokens,
            is_told=is_first,
            front=self.secret,
        ).packed()

    def _processed(self, outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        return self._process([output for output in outputs if not self._is_taken(output)], *args, **kwargs)

    def _aborted(self, *args: Any, **kwargs: Any) -> Any:
        aborted_ids = self._abort(*args, **kwargs)
        for request_id in set(self._asks) - self._under_way.keys():
            self._settle(request_id)
        return aborted_ids

    def _settle(self, request_id: str) -> None:
        """Settle a prompt that ended before it was admitted: the engine reports nothing more about it."""
        if ask := self._asks.pop(request_id, None):
            ask.settle()

    def _propagated(self, problem: Exception) -> Any:
        for ask in list(self._asks.values()):  # the engine will report nothing more about them
            ask.settle(api_error(EngineFailed("", "the engine has ended"), {}))
        return self._propagate(problem)

    def _is_taken(self, output: Any) -> bool:
        """Take our fields from an output, and return whether it contains nothing else."""
        report = (output.kv_transfer_params or {}).get(FIELD)
        if report is None:
            if output.finish_reason is not None:
                self._settle(output.request_id)
            return False
        output.kv_transfer_params = None
        ask = self._asks.pop(output.request_id, None) or self._siblings.get(output.request_id)
        if ask is not None and "admission" in report:
            ask.settle(admission_unpacked(report["admission"]))
        if ask is not None and "refused" in report:
            ask.settle(api_error(request_error(*report["refused"]), {}))
        return output.finish_reason is None
