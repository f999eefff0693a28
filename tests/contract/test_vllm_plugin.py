"""`luminet-vllm`, installable by itself: it holds what its entry points import, and nothing more."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from engine_agent.process.config import CHECKOUT

FOLDER = CHECKOUT / "deploy" / "vllm-plugin"
PROJECT = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS = PROJECT["project"]["entry-points"]
NAMED_BY_OPERATORS = ("engine_agent.backends.vllm.scheduler",)  # --scheduler-cls
LICENSE = "engine_agent/LICENSE"  # goes with what it is for, and comes from the top
VLLM_BRINGS = {"vllm", "torch", "numpy", "starlette", "tokenizers"}


def packaged() -> set[Path]:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    sources = {(FOLDER / source).resolve(): target for source, target in included.items()}
    assert all(str(source.relative_to(CHECKOUT)) == target for source, target in sources.items() if target != LICENSE)
    return {source for source, target in sources.items() if target != LICENSE}


@cache
def imported() -> tuple[set[Path], set[str]]:
    """Our files that the entry points come to, also inside functions, and others' packages."""
    ours: set[Path] = set()
    others: set[str] = set()
    waiting = [target.partition(":")[0] for group in GROUPS.values() for target in group.values()]
    waiting += NAMED_BY_OPERATORS
    while waiting:
        module = waiting.pop()
        file = file_of(module)
        if file is None:
            others.add(module.partition(".")[0])
        elif file not in ours:
            ours |= {file, *(file_of(package) for package in packages_of(module))} - {None}  # type: ignore[arg-type]
            waiting += imports_of(ast.parse(file.read_text(encoding="utf-8")))
    return ours, others - sys.stdlib_module_names


def packages_of(module: str) -> Iterator[str]:
    parts = module.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts)))


def file_of(module: str) -> Path | None:
    path = CHECKOUT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (full for name in node.names if file_of(full := f"{node.module}.{name.name}"))
        yield from imports_of(node)


def test_it_holds_what_its_entry_points_import_and_nothing_more() -> None:
    assert packaged() == imported()[0]


def test_it_imports_what_vllm_brings_and_has_no_dependency_that_could_change_it() -> None:
    assert imported()[1] <= VLLM_BRINGS
    assert PROJECT["project"]["dependencies"] == []


def test_the_entry_points_name_what_is_there() -> None:
    for group in GROUPS.values():
        for target in group.values():
            module, _, name = target.partition(":")
            file = file_of(module)
            assert file
            tree = ast.parse(file.read_text(encoding="utf-8"))
            assert name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
