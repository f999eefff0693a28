"""How our own engine is started. It computes every format, so an option for one is refused."""

import argparse
import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine_agent.backends.errors import BadOption
from engine_agent.backends.registry import BackendEntry

if TYPE_CHECKING:
    from engine_agent.backends.paged.backend import PagedBackend

SOON_SECONDS = 0.5  # what takes no longer needs no line


def check(options: argparse.Namespace) -> None:
    """Raises BadOption."""
    if options.kv_dtype != "auto":
        raise BadOption("--kv-dtype", "is for --backend vllm; our own engine computes every format that policies name")
    if options.vllm_python is not None:
        raise BadOption("--vllm-python", "is for --backend vllm")


async def opened(config: Any, say: Callable[[str], None]) -> "tuple[PagedBackend, str]":
    # A compiler is a process of its own: the first start on a machine has it run while Python reads torch.
    building = asyncio.create_task(asyncio.to_thread(_kernels))
    await asyncio.sleep(0)
    from engine_agent.backends.paged.backend import PagedBackend  # with torch, which takes a second or two

    if not (await asyncio.wait({building}, timeout=SOON_SECONDS))[0]:
        say("compiling the CPU's kernels, once on this machine")
    kernels = await building
    return await PagedBackend.open(config.model, name=config.name, settings=config.settings, tell=say), kernels


def _kernels() -> str:
    from kernels.native.library import status

    return f"kernels in {status()}"


BACKEND = BackendEntry(opened, check, measured_as=("torch-cpu", "triton-cuda"))
