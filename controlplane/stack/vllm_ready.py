"""vLLM for a stack that is to have it: installed before anything starts, or one sentence that says why it cannot be."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.stack.bootstrap import say
from controlplane.stack.config import StackConfig
from controlplane.stack.environments import Environment, Unavailable
from controlplane.stack.errors import VllmMissing
from controlplane.stack.vllm_env import VLLM


def vllm_ensure(config: StackConfig, vllm: Environment = VLLM) -> None:
    """Raises VllmMissing. What is there already is taken where nothing may be installed, whoever made it."""
    if not wants_vllm(config) or (not config.installs_engine and vllm.python.exists()):
        return
    if not config.installs_engine:
        raise VllmMissing(f"there is no {vllm.python}, and LUMINET_INSTALL_ENGINE forbids to make it")
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


@contextmanager
def _stopped_by_make_down() -> Iterator[None]:
    """As Ctrl-C does it: pip ends as well, and does not go on in a folder that nobody holds any more."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
