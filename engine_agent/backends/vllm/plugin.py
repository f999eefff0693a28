"""Hooks into vLLM's own processes. They import vLLM when called.

`check` is the entry point that each process calls where `luminet-vllm` is installed. `PolicyScheduler` calls `register`
when it is created, in the process of each engine core, perhaps more than once.
"""

from typing import Any

from engine_agent.backends.vllm.versions import check_version, installed_version


def check() -> None:
    """Let vLLM start only with a tested version. Raises UnknownVllm."""
    check_version(installed_version())


def register() -> None:
    """Give `EngineCore` the method `luminet`, which vLLM calls between two steps. Raises UnknownVllm."""
    check()
    from vllm.v1.engine.core import EngineCore

    EngineCore.luminet = _asked


def _asked(self: Any, verb: str, arguments: Any) -> Any:
    """Call `VllmCore`, created at the first call, because the scheduler is created before vLLM's engine is complete."""
    from engine_agent.backends.vllm.core import VllmCore
    from engine_agent.backends.vllm.scheduling import PolicyScheduling

    if not isinstance(self.scheduler, PolicyScheduling):
        return {"error": ["BadRequest", "", "vLLM runs another scheduler: start it with Luminet's --scheduler-cls"]}
    if not hasattr(self, "luminet_core"):
        self.luminet_core = VllmCore(self)
    return self.luminet_core.ask(verb, *arguments)
