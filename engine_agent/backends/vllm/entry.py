"""The entry point of an engine with vLLM: in vLLM's own virtualenv, with one format from its start."""

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from engine_agent.backends.registry import BackendEntry
from engine_agent.engine.errors import BadSetting

if TYPE_CHECKING:
    from engine_agent.backends.vllm.backend import VllmBackend


def check(options: argparse.Namespace) -> None:
    """Raise BadSetting for options that vLLM cannot honour."""
    if options.host_pool:
        raise BadSetting("host_bytes", "vLLM has no host tier under policies: leave --host-pool out")


def prepare(config: Any, arguments: Sequence[str]) -> None:
    from engine_agent.backends.vllm.environment import go_to_vllms_python

    go_to_vllms_python(config, arguments)


async def opened(config: Any, say: Callable[[str], None]) -> "tuple[VllmBackend, str]":
    from engine_agent.backends.vllm.backend import VllmBackend
    from engine_agent.backends.vllm.versions import installed_version

    backend = await VllmBackend.open(
        config.model, name=config.name, settings=config.settings, kv_format=config.kv_dtype, tell=say
    )
    return backend, f"vLLM {installed_version()}"


# There are no quality results of the demo model with vLLM, and only the baseline format needs none.
BACKEND = BackendEntry(
    opened, check, prepare, demo_options=("--kv-dtype", "bf16"), measured_as=("vllm-cpu", "vllm-cuda")
)
