"""A copy of the tree that a test may change, and what it has changed there."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PARTS = ("controlplane", "engine_agent", "kernels", "tenants", "templates", "tests", "docs", "deploy")
FILES = ("manage.py", "pyproject.toml", "CHANGELOG.md", "README.md", "Makefile")
LEFT_OUT = ("__pycache__", "*.pyc", "images", "*.safetensors", "golden")


def tree_copied(to: Path) -> Path:
    for part in PARTS:
        shutil.copytree(CHECKOUT / part, to / part, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    for name in FILES:
        shutil.copy(CHECKOUT / name, to / name)
    return to


def files_touched(copy: Path) -> list[str]:
    """New or different in the copy."""
    return sorted(str(path.relative_to(copy)) for path in _files(copy) if _differs(path, copy))


def _files(copy: Path) -> Iterator[Path]:
    return (path for path in copy.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _differs(path: Path, copy: Path) -> bool:
    original = CHECKOUT / path.relative_to(copy)
    return not original.is_file() or original.read_bytes() != path.read_bytes()


def module_run(copy: Path, *arguments: str) -> str:
    """What `python -m …` prints where only the copy can be imported."""
    environment = {"PYTHONPATH": str(copy), "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", *arguments],
        cwd=copy,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def text_insert(path: Path, text: str, *, before: str) -> None:
    """At the only place where `before` is."""
    content = path.read_text(encoding="utf-8")
    assert content.count(before) == 1, f"{path}: {before!r} is there {content.count(before)} times"
    path.write_text(content.replace(before, text + before), encoding="utf-8")
