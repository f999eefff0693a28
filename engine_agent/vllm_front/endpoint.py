"""vLLM's entry point `vllm.endpoint_plugins`: makes vLLM's own server serve namespaces. Imports vLLM.

vLLM loads it if `VLLM_PLUGINS` names it. Without it our scheduler refuses each request.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any

from engine_agent.backends.vllm.plugin import check
from engine_agent.engine.errors import EngineFailed
from engine_agent.http.errors import unavailable
from engine_agent.vllm_front.admin import AdminRoutes
from engine_agent.vllm_front.config import BadConfig, FrontConfig, front_config
from engine_agent.vllm_front.door import EngineDoor
from engine_agent.vllm_front.middleware import Identified
from engine_agent.vllm_front.whose import Caller, Guard, NobodyGuard, guard

LOG = logging.getLogger("luminet.vllm")
TICK_SECONDS = 1.0


class LuminetEndpoint:
    name = "luminet"
    required_tasks: tuple[Any, ...] | None = ("generate",)

    def __init__(self) -> None:
        self._config = FrontConfig()
        self._guard: Guard = NobodyGuard()
        self._door: EngineDoor | None = None
        self._ticking: asyncio.Task[None] | None = None

    def attach_router(self, app: Any) -> None:
        app.add_middleware(Identified, whose=self._whose, agent_id=lambda: self._config.agent_id)
        for (method, path), endpoint in AdminRoutes(self._ask, lambda: self._config.admin_secret).routes.items():
            app.add_route(path, endpoint, methods=[method])

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Raise UnknownVllm, BadConfig, BadState or BadRequest: vLLM then reports it and does not start."""
        check()
        config = front_config(os.environ)
        _check_started_with(engine_client.vllm_config, config)
        engine_api = EngineDoor(engine_client)
        await engine_api.ask("adopt", engine_api.secret, config.namespaces)
        self._config, self._guard, self._door = config, guard(config), engine_api
        self._ticking = asyncio.create_task(_tick(engine_api))

    def _whose(self, headers: Mapping[str, str]) -> Caller:
        return self._guard.caller(headers)

    async def _ask(self, verb: str, *arguments: Any) -> Any:
        if self._door is None:
            raise unavailable("The engine is not there yet.", "starting")
        try:
            return await self._door.ask(verb, *arguments)
        except EngineFailed:
            raise
        except Exception as problem:
            if type(problem).__module__.startswith("vllm."):
                raise EngineFailed("", f"vLLM's engine did not answer: {problem}") from problem
            raise


def _check_started_with(vllm_config: Any, config: FrontConfig) -> None:
    from engine_agent.backends.vllm.scheduler import PolicyScheduler

    if not issubclass(vllm_config.scheduler_config.get_scheduler_cls(), PolicyScheduler):
        scheduler = f"{PolicyScheduler.__module__}.{PolicyScheduler.__qualname__}"
        raise BadConfig(
            f"vLLM runs another scheduler, which obeys no policy: start it with --scheduler-cls {scheduler}"
        )
    if config.identity_secrets and vllm_config.parallel_config._api_process_count > 1:
        raise BadConfig("an identity is good for one use, which several servers cannot know: --api-server-count 1")


async def _tick(engine_api: EngineDoor) -> None:
    """Wake vLLM's loop, which sleeps while nothing runs: expiry must not wait for the next request."""
    while True:
        await asyncio.sleep(TICK_SECONDS)
        try:
            await engine_api.ask("tick")
        except Exception as problem:
            LOG.warning("vLLM's engine is not asked any more: %s", problem)
            return
