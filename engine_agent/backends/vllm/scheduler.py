"""vLLM's schedulers under our policies: `--scheduler-cls engine_agent.backends.vllm.scheduler.PolicyScheduler`, and
`PolicyAsyncScheduler` where vLLM schedules ahead of the GPU. Imports vLLM.

Each is created in the process of an engine core, which from then on also answers our calls (`plugin.py`).
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
    """For a vLLM that schedules a step before it knows the tokens of the previous one."""
