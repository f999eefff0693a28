"""The entry point of our own engine. It computes every format, so an option for one is refused."""

import argparse
import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine_agent.backends.errors import BadOption
from engine_agent.backends.registry import BackendEntry

if TYPE_CHECKING:
    from engine_agent.backends.paged.backend import PagedBackend

SOON_SECONDS = 0.5  # faster builds are not announced


def check(options: argparse.Namespace) -> None:
    """Raise BadOption for options that are for vLLM only."""
    if options.kv_dtype != "auto":
        raise BadOption("--kv-dtype", "is for --backend vllm; our own engine computes every format that policies name")
    if options.vllm_python is not None:
        raise BadOption("--vllm-python", "is for --backend vllm")


async def opened(config: Any, say: Callable[[str], None]) -> "tuple[PagedBackend, str]":
    # The compiler is a separate process: on a machine's first start it runs while Python imports torch.
    building = asyncio.create_task(asyncio.to_thread(_kernels))
    await asyncio.sleep(0)
    from engine_agent.backends.paged.backend import PagedBackend  # imports torch, which takes a second or two

    if not (await asyncio.wait({building}, timeout=SOON_SECONDS))[0]:
        say("compiling the CPU's kernels, once on this machine")
    kernels = await building
    return await PagedBackend.open(config.model, name=config.name, settings=config.settings, tell=say), kernels


def _kernels() -> str:
    from kernels.native.library import status

    return f"kernels in {status()}"


BACKEND = BackendEntry(opened, check, measured_as=("torch-cpu", "triton-cuda"))
