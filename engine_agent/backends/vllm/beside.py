"""Constraints for pip to install our packages into vLLM's own Python, written when the image `vllm` is built.

Installed packages keep their versions, whatever we pin elsewhere; all others get those of constraints.txt. Standard
library only, without imports of ours, because it runs before those are installed.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path


def pins(constraints: Iterable[str], installed: Mapping[str, str]) -> list[str]:
    """Return lines of constraints for pip. `installed`: versions by name."""
    versions = {_normal(name): version for name, version in installed.items()}
    requirements = (line.strip() for line in constraints)
    missing_requirements = [
        line for line in requirements if line and line[0] != "#" and _normal(line.partition("==")[0]) not in versions
    ]
    return sorted([*(f"{name}=={version}" for name, version in versions.items()), *missing_requirements])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).strip().lower()


def main() -> None:
    installed = {
        distribution.metadata["Name"]: distribution.version
        for distribution in distributions()
        if distribution.metadata["Name"]
    }
    print(*pins(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines(), installed), sep="\n")


if __name__ == "__main__":
    main()
