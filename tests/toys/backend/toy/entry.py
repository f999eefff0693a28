"""How a toy is started: all that the registry knows of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine_agent.backends.registry import BackendEntry


async def opened(config: Any, say: Callable[[str], None]) -> tuple[Any, str]:
    from engine_agent.backends.paged.backend import PagedBackend

    say("unpacking the toy")
    backend = await PagedBackend.open(config.model, name=config.name, settings=config.settings, tell=say)
    backend.card = replace(backend.card, backend="toy", backend_version="1")
    return backend, "a toy's kernels"


BACKEND = BackendEntry(opened, measured_as=("toy-cpu", "toy-gpu"))
