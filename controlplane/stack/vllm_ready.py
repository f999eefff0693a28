"""Install vLLM for a stack that needs it, before anything starts, or say in one sentence why that fails."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.stack.bootstrap import run_quietly, say
from controlplane.stack.config import StackConfig
from controlplane.stack.environments import Environment, Unavailable
from controlplane.stack.errors import VllmMissing
from controlplane.stack.vllm_env import VLLM

FIND = "import sys; from importlib.util import find_spec; sys.exit(not find_spec('vllm'))"


def vllm_ensure(config: StackConfig, vllm: Environment = VLLM) -> None:
    """Install vLLM if the stack needs it. Raises VllmMissing. If nothing may be installed, use what is there."""
    if not wants_vllm(config):
        return
    if not config.installs_engine:
        if not has_vllm(vllm.python):
            raise VllmMissing(f"there is none in {vllm.folder}, and LUMINET_INSTALL_ENGINE forbids to install it")
        return
    try:
        with _stopped_by_make_down():
            vllm.ready_python()
    except Unavailable as why:
        raise VllmMissing(str(why)) from why
    except KeyboardInterrupt:
        say("interrupted; the same command begins this installation again")
        raise


def wants_vllm(config: StackConfig) -> bool:
    return any(agent.backend == "vllm" for agent in config.agents)


def has_vllm(python: Path) -> bool:
    return python.exists() and run_quietly([str(python), "-I", "-c", FIND]).returncode == 0


@contextmanager
def _stopped_by_make_down() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that pip ends, too, and does not continue in a directory without a lock."""
    previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
