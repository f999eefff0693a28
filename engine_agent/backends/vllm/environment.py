"""vLLM has its own virtualenv: an engine with vLLM re-executes itself there, in the same process.

Standard library only.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from engine_agent.backends.engine_config import EngineConfig
from engine_agent.backends.vllm.formats import VLLM_DTYPES
from engine_agent.backends.vllm.versions import check_version, installed_version
from engine_agent.engine.errors import BadSetting
from engine_agent.process.config import CHECKOUT

MODULE = "engine_agent.server.command"
PYTHON = CHECKOUT / ".venv-vllm" / "bin" / "python"
HOW = "`make up BACKENDS=paged,vllm` makes it; --vllm-python names another"


def go_to_vllms_python(
    config: EngineConfig,
    arguments: Sequence[str],
    *,
    has_vllm: Callable[[], bool] = lambda: find_spec("vllm") is not None,
    version: Callable[[], str | None] = installed_version,
    become: Callable[[str, list[str], dict[str, str]], object] = os.execve,
) -> None:
    """Return if a tested vLLM is importable already and nothing of it was imported; otherwise re-execute.

    Raises BadSetting if there is no vLLM or it cannot compute the format, and UnknownVllm.
    """
    if config.kv_dtype not in VLLM_DTYPES:
        served = ", ".join(VLLM_DTYPES)
        raise BadSetting("kv_dtype", f"{config.kv_dtype!r} is none of what vLLM computes here: {served}")
    if has_vllm():
        check_version(version())
        return
    python = config.vllm_python or PYTHON
    if not os.access(python, os.X_OK):
        raise BadSetting("backend", f"vLLM is not installed: there is no {python} ({HOW})")
    if Path(sys.executable) == python:
        raise BadSetting("backend", f"{python} has no vLLM ({HOW})")
    paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    become(str(python), [str(python), "-m", MODULE, *arguments], environ)
