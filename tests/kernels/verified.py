"""Ids of all that the full kernel matrix tests, and those of its last green run: tests/kernels/verified.json."""

import ast
import json
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from controlplane.stack.bootstrap import CHECKOUT
from kernels.native.building import NotBuilt, compiler_version, find_compiler, processor

FILE = CHECKOUT / "tests" / "kernels" / "verified.json"
KERNELS = "kernels"
TESTS = "tests/unit/kernels"
LIBRARIES = ("torch", "triton", "numpy")  # Triton's interpreter computes in numpy
DIGITS = 16

Ids = Mapping[str, str]


def current_ids(checkout: Path = CHECKOUT) -> dict[str, str]:
    """Return the id of each part that decides what the full run finds."""
    return {
        "kernels": digest(checkout, source_files(checkout / KERNELS)),
        "tests": digest(checkout, files_of_tests(checkout)),
        "python": platform.python_version(),
        **{name: _library_version(name) for name in LIBRARIES},
        "compiler": _compiler(),
        "processor": sha256(processor().encode()).hexdigest()[:DIGITS],
    }


def verified_ids(file: Path = FILE) -> Ids:
    """Return the ids of the last green full run; none if there is no record of one that can be read."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8"))["ids"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):  # a record with a merge conflict in it is none
        return {}


def verified_write(ids: Ids, passed: int, file: Path = FILE, *, day: date | None = None) -> None:
    """Record a green full run."""
    content = {"date": str(day or datetime.now(UTC).date()), "passed": passed, "ids": dict(ids)}
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def differences(verified: Ids, current: Ids) -> list[str]:
    """Name the ids that are not the same in both."""
    return [name for name in {**current, **verified} if current.get(name) != verified.get(name)]


def digest(checkout: Path, files: Iterable[Path]) -> str:
    """Return an id of the files' names and contents."""
    whole = sha256()
    for file in sorted(files):
        for part in (str(file.relative_to(checkout)).encode(), file.read_bytes()):
            whole.update(sha256(part).digest())
    return whole.hexdigest()[:DIGITS]


def source_files(folder: Path) -> set[Path]:
    """Return all files below a folder, without what Python compiles them to."""
    return {file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts}


def files_of_tests(checkout: Path = CHECKOUT) -> set[Path]:
    """Return the kernels' tests and every helper below tests/ that they import, also indirectly."""
    found = source_files(checkout / TESTS)
    waiting = [file for file in found if file.suffix == ".py"]
    while waiting:
        imported = {file for name in _imported_names(waiting.pop()) for file in _module_files(checkout, name)}
        waiting += imported - found
        found |= imported
    return found


def _imported_names(file: Path) -> set[str]:
    """Return the dotted names below tests/ that a file imports. What it imports from a module may be a module too."""
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.startswith("tests.")}


def _module_files(checkout: Path, name: str) -> set[Path]:
    """Return the files that an import runs: the module's and those of the packages around it."""
    path = checkout.joinpath(*name.split("."))
    packages = [path, *path.parents[: len(name.split(".")) - 1]]
    files = [path.with_suffix(".py"), *(package / "__init__.py" for package in packages)]
    return {file for file in files if file.is_file()}


def _library_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _compiler() -> str:
    try:
        return compiler_version(find_compiler())
    except NotBuilt as problem:
        return str(problem)
