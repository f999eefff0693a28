"""`python -m tests.kernels.table`: write the section of docs/testing.md that lists the kernels' matrices."""

import importlib
import os
import pkgutil
from collections.abc import Iterator

from controlplane.stack.bootstrap import CHECKOUT
from tests.kernels.matrix import Matrix, Row

PAGE = CHECKOUT / "docs" / "testing.md"
BEGIN = "<!-- python -m tests.kernels.table writes what follows -->"
END = "<!-- up to here -->"
HEAD = ("| test | parameters (how many values) | product | in `make test` | corner cases |", "|---|---|--:|--:|---|")


def matrices() -> Iterator[tuple[str, str, Matrix]]:
    """Yield file, test and matrix of every test that has one."""
    import tests.unit.kernels as package

    for module_info in pkgutil.iter_modules(package.__path__):
        if module_info.name.startswith("test_"):
            module = importlib.import_module(f"{package.__name__}.{module_info.name}")
            for name, function in vars(module).items():
                if name.startswith("test_") and isinstance(getattr(function, "matrix", None), Matrix):
                    yield module_info.name, name, function.matrix


def table() -> str:
    rows = [_line(file, name, matrix) for file, name, matrix in matrices()]
    return "\n".join([BEGIN, *HEAD, *rows, END])


def page_write() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + table() + rest.partition(END)[2], encoding="utf-8")


def _line(file: str, name: str, matrix: Matrix) -> str:
    axes = " × ".join(f"`{key}` ({len(values)})" for key, values in matrix.axes.items())
    corners = "; ".join(_words(corner) for corner in matrix.corners) or "none"
    return f"| `{file}.py`: `{name}` | {axes} | {matrix.full_size} | {len(matrix.reduced)} | {corners} |"


def _words(row: Row) -> str:
    return " ".join("/".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in row)


if __name__ == "__main__":
    os.environ.setdefault("TRITON_INTERPRET", "1")
    page_write()
