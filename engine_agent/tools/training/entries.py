"""Docstrings and their objects: parsed from Python sources without an import, and inspected in C modules."""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, MethodDescriptorType, ModuleType

# Modules with docstrings that are at least partly in C.
IN_C_WORDS = """
array binascii builtins collections functools gc io itertools math operator os select signal socket struct sys time
unicodedata zlib
"""
IN_C = tuple(IN_C_WORDS.split())
Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Entry:
    """One docstring: `textwrap`, `dedent`, `(text)`, "Remove any common leading whitespace …"."""

    module: str
    path: str  # inside the module; empty for the module itself
    signature: str
    doc: str

    @property
    def name(self) -> str:
        """Return the name as in a program: `textwrap.dedent`, but `len`."""
        if self.module == "builtins":
            return self.path or self.module
        return f"{self.module}.{self.path}" if self.path else self.module

    @property
    def is_public(self) -> bool:
        return not any(part.startswith("_") for part in self.name.split("."))

    @property
    def summary(self) -> str:
        """Return the first paragraph on one line, cut after a sentence if it is long."""
        words = " ".join(self.doc.split("\n\n", 1)[0].split())
        end = words.find(". ", 120)
        return words if end < 0 else words[: end + 1]

    @property
    def paragraph(self) -> str:
        """Return the entry's text on its module's page."""
        if not self.path:
            return f"{self.doc}\n"
        return f"{self.name}{self.signature}\n\n{textwrap.indent(self.doc, '    ')}\n"


def python_entries(module: str, source: str) -> Iterator[Entry]:
    """Iterate over the docstrings of a Python module, in the order of its source."""
    tree = ast.parse(source)
    if doc := ast.get_docstring(tree):
        yield Entry(module, "", "", doc)
    yield from entries_in(module, "", tree.body)


def entries_in(module: str, path: str, body: list[ast.stmt]) -> Iterator[Entry]:
    for node in body:
        if isinstance(node, Defined):
            inner = f"{path}.{node.name}" if path else node.name
            if doc := ast.get_docstring(node):
                yield Entry(module, inner, signature_of(node), doc)
            if isinstance(node, ast.ClassDef):
                yield from entries_in(module, inner, node.body)


def signature_of(node: Defined) -> str:
    return "" if isinstance(node, ast.ClassDef) else f"({ast.unparse(node.args)})"


def builtin_entries() -> Iterator[Entry]:
    """Iterate over the docstrings of modules written in C."""
    for name in IN_C:
        module = importlib.import_module(name)
        if not hasattr(module, "__file__") and module.__doc__:
            yield Entry(name, "", "", inspect.cleandoc(module.__doc__))
        for path, member in sorted(in_c(module), key=lambda named_member: named_member[0]):
            doc = inspect.cleandoc(getattr(member, "__doc__", None) or "")
            if doc:
                yield Entry(name, path, getattr(member, "__text_signature__", None) or "", doc)


def in_c(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Iterate over the module's public functions, classes and methods that are not written in Python."""
    for name, member in vars(module).items():
        if name.startswith("_") or name.endswith("hook"):  # test runners and shells install their own hooks there
            continue
        if isinstance(member, BuiltinFunctionType):
            yield name, member
        elif isinstance(member, type) and not inspect.isfunction(vars(member).get("__init__")):
            yield name, member
            for inner, method in vars(member).items():
                if isinstance(method, MethodDescriptorType) and not inner.startswith("_"):
                    yield f"{name}.{inner}", method
