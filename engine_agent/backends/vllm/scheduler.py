"""vLLM's schedulers under our policies: `--scheduler-cls engine_agent.backends.vllm.scheduler.PolicyScheduler`, and
`PolicyAsyncScheduler` where vLLM schedules ahead of the GPU. Imports vLLM.

Each is made in the process of an engine core, which from then on answers us too (`plugin.py`).
"""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from engine_agent.backends.vllm.plugin import register
from engine_agent.backends.vllm.scheduling import PolicyScheduling


class PolicyScheduler(PolicyScheduling):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        register()
        super().__init__(*args, **kwargs)


class PolicyAsyncScheduler(PolicyScheduler, AsyncScheduler):  # type: ignore[misc]
    """For where vLLM schedules a step before it knows the tokens of the one before."""
