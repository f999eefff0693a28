"""What vLLM's own processes are given. Imports vLLM when called.

`check` is the entry point that each of them calls where `luminet-vllm` is installed. `PolicyScheduler` calls `register`
when it is made, in the process of each engine core, maybe more than once.
"""

from typing import Any

from engine_agent.backends.vllm.versions import check_version, installed_version


def check() -> None:
    """vLLM starts with a version that was tested, or not at all. Raises UnknownVllm."""
    check_version(installed_version())


def register() -> None:
    """`EngineCore` gets the method `luminet`, which vLLM calls between two steps. Raises UnknownVllm."""
    check()
    from vllm.v1.engine.core import EngineCore

    EngineCore.luminet = _asked


def _asked(self: Any, verb: str, arguments: Any) -> Any:
    """Connected when first asked: the scheduler is made while vLLM's engine is half made."""
    from engine_agent.backends.vllm.core import VllmCore
    from engine_agent.backends.vllm.scheduling import PolicyScheduling

    if not isinstance(self.scheduler, PolicyScheduling):
        return {"error": ["BadRequest", "", "vLLM runs another scheduler: start it with Luminet's --scheduler-cls"]}
    if not hasattr(self, "luminet_core"):
        self.luminet_core = VllmCore(self)
    return self.luminet_core.ask(verb, *arguments)
