"""How the four packages fit together: no circle, no stray module, nothing in the wheel that only makes a model."""

import ast
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("controlplane", "engine_agent", "kernels", "tenants")
TRAINING = "engine_agent.tools.training"
# What starts a process, by name, from a command line or a server's configuration; all else is in a package.
ROOTS = {
    "controlplane": {"asgi", "beat", "celery", "cli", "serve", "served", "urls"},
    "controlplane/dashboard": {"apps", "urls"},
    "engine_agent": set[str](),
}


@cache
def modules() -> Mapping[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in (CHECKOUT / package).rglob("*.py"):
            parts = path.relative_to(CHECKOUT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def import_graph() -> Mapping[str, Set[str]]:
    """Each module with those it names in imports: at its top, in functions, and for types alone."""
    return {name: set(_imports(name, path)) - {name} for name, path in modules().items()}


def _imports(name: str, path: Path) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                named = (f"{source}.{alias.name}", source)
                yield from [module for module in named if module in modules()][:1]


def circle(graph: Mapping[str, Set[str]]) -> list[str]:
    """The first circle of imports: its modules in order, the first once more at the end. Empty where there is none."""
    finished: set[str] = set()
    for start in sorted(graph):
        path, waiting = [start], [iter(sorted(graph[start]))]
        while waiting:
            module = next(waiting[-1], None)
            if module is None:
                waiting.pop()
                finished.add(path.pop())
            elif module in path:
                return [*path[path.index(module) :], module]
            elif module not in finished:
                path.append(module)
                waiting.append(iter(sorted(graph[module])))
    return []


def test_modules_import_each_other_in_no_circle() -> None:
    assert " → ".join(circle(import_graph())) == ""


def test_a_circle_is_found_and_named() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": set[str](), "d": {"b"}}
    assert circle(graph) == ["b", "d", "b"]


def test_imports_in_functions_and_for_types_count() -> None:
    graph = import_graph()
    assert "controlplane.stack.postgres" in graph["controlplane.backups.programs"]  # in a function
    assert "django" not in graph
    assert all(graph[module] <= graph.keys() for module in graph)


def test_roots_hold_only_what_starts_a_process() -> None:
    for root, expected in ROOTS.items():
        assert {path.stem for path in (CHECKOUT / root).glob("*.py")} - {"__init__"} == expected, root


def test_wheel_leaves_training_out() -> None:
    shipped = {file.distribution_path for file in WheelBuilder(str(CHECKOUT)).recurse_included_files()}
    assert "engine_agent/tools/loadgen/__init__.py" in shipped
    assert [path for path in sorted(shipped) if path.startswith(f"{TRAINING.replace('.', '/')}/")] == []


def test_nothing_shipped_imports_training() -> None:
    imports = {
        module: [name for name in names if name.startswith(TRAINING)]
        for module, names in import_graph().items()
        if not module.startswith(TRAINING)
    }
    assert {module: names for module, names in imports.items() if names} == {}
