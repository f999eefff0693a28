"""vLLM's entry points: `vllm.general_plugins` calls `register` in each of its processes, maybe more than once.

Imports vLLM when called, so that whoever lists entry points need not have it.
"""

from typing import Any

from engine_agent.backends.vllm.versions import check_version, installed_version


def register() -> None:
    """`EngineCore` gets the method `luminet`, which vLLM calls between two steps."""
    from vllm.v1.engine.core import EngineCore

    check_version(installed_version())
    EngineCore.luminet = _asked


def _asked(self: Any, verb: str, arguments: Any) -> Any:
    """Connected when first asked: vLLM loads plugins while its engine is half made."""
    from engine_agent.backends.vllm.core import VllmCore
    from engine_agent.backends.vllm.scheduler import PolicyScheduler

    if not isinstance(self.scheduler, PolicyScheduler):
        return {"error": ["BadRequest", "", "vLLM runs another scheduler: start it with Luminet's --scheduler-cls"]}
    if not hasattr(self, "luminet_core"):
        self.luminet_core = VllmCore(self)
    return self.luminet_core.ask(verb, *arguments)
