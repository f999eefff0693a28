"""A copy of the tree to add something to, and what was added."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from engine_agent.process.config import CHECKOUT

PARTS = ("controlplane", "engine_agent", "kernels", "tenants", "templates")


@dataclass(frozen=True, slots=True)
class Tree:
    folder: Path

    @classmethod
    def copied(cls, folder: Path) -> "Tree":
        for part in PARTS:
            shutil.copytree(CHECKOUT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        return cls(folder)

    @property
    def environment(self) -> dict[str, str]:
        """In which Python finds this tree's packages, and of the checkout only the tests."""
        paths = os.pathsep.join((str(self.folder), str(CHECKOUT)))
        return {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}

    def python(self, *arguments: str, **environment: str) -> str:
        """What Python prints in this tree."""
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment | environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def changed(self) -> list[str]:
        """The files that are not as in the checkout, or not there."""
        ours, theirs = _digests(self.folder), _digests(CHECKOUT)
        return sorted(path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path))


def _digests(folder: Path) -> dict[str, bytes]:
    files = (path for part in PARTS for path in (folder / part).rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).digest()
        for path in files
        if "__pycache__" not in path.parts
    }
