"""A copy of the checkout to add something to, and what was added."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
FOLDERS = ("controlplane", "engine_agent", "kernels", "tenants", "templates", "tests", "docs", "deploy")
FILES = ("manage.py", "pyproject.toml", "CHANGELOG.md", "README.md", "Makefile")
LEFT_OUT = ("__pycache__", ".luminet", "images", "golden")


@dataclass(frozen=True, slots=True)
class Tree:
    folder: Path

    @classmethod
    def copied(cls, folder: Path) -> "Tree":
        for part in FOLDERS:
            shutil.copytree(CHECKOUT / part, folder / part, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        for name in FILES:
            shutil.copy(CHECKOUT / name, folder / name)
        return cls(folder)

    @property
    def environment(self) -> dict[str, str]:
        """In which Python imports from this tree, and leaves nothing in it."""
        return {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}

    def insert(self, file: str, text: str, *, before: str) -> None:
        """At the only place where `before` is."""
        path = self.folder / file
        content = path.read_text(encoding="utf-8")
        assert content.count(before) == 1, f"{file}: {before!r} is there {content.count(before)} times"
        path.write_text(content.replace(before, text + before), encoding="utf-8")

    def python(self, *arguments: str, **environment: str) -> str:
        """What Python prints in this tree."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def changed(self) -> list[str]:
        """The files that are not as in the checkout, or not in both."""
        ours, theirs = _digests(self.folder), _digests(CHECKOUT)
        return sorted(path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path))


def _digests(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).digest() for path in _files(folder)}


def _files(folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in FILES)
    for part in FOLDERS:
        for path in (folder / part).rglob("*"):
            if path.is_file() and not {*path.relative_to(folder).parts} & {*LEFT_OUT}:
                yield path
