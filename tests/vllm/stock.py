"""`vllm serve` as its command would run it, where vLLM's CPU build is installed: that one answers to another name, so
its own command does not find its version.
"""

import importlib.metadata
import sys
from typing import Any

from engine_agent.backends.vllm.versions import DISTRIBUTIONS

_version = importlib.metadata.version


def version(name: str) -> str:
    return f"{_version(DISTRIBUTIONS[1])}+cpu" if name == DISTRIBUTIONS[0] else _version(name)


def main() -> Any:
    setattr(importlib.metadata, "version", version)  # noqa: B010 (its name is not the original's)
    from vllm.entrypoints.cli.main import main as command

    sys.argv[0] = "vllm"
    return command()


if __name__ == "__main__":
    main()
