"""The mutations of a module's source: pure, by syntax tree, applied to the text so that all else stays as it is."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

SWAPPED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
}
LOGS = {"log", "logger", "logging"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutation:
    """Where it is found again after small moves: all but the last four, which are where it is now."""

    file: str
    function: str
    text: str  # of its line
    operator: str
    occurrence: int  # of the same in the same function
    line: int
    statement: int  # the line on which its statement begins
    start: int  # in bytes
    end: int

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.file, self.function, self.text, self.operator, self.occurrence

    @property
    def replacement(self) -> str:
        return self.operator.partition(" → ")[2]

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.replacement.encode() + source[self.end :]


def mutations_of(file: str, source: bytes) -> list[Mutation]:
    """All of the bodies of functions; module level runs at import, when coverage cannot tell for which test."""
    found = _Finder(file, source)
    found.visit(ast.parse(source))
    seen: Counter[tuple[str, ...]] = Counter()
    numbered = []
    for mutation in sorted(found.mutations, key=lambda each: (each.start, each.operator)):
        same = (mutation.function, mutation.text, mutation.operator)
        numbered.append(replace(mutation, occurrence=seen[same]))
        seen[same] += 1
    return numbered


def is_valid(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, source: bytes) -> None:
        self.file, self.source, self.mutations = file, source, list[Mutation]()
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._names: list[str] = []
        self._in_function = False
        self._statement = 0

    def visit(self, node: ast.AST) -> None:
        if self._in_function and isinstance(node, ast.stmt):
            self._statement = node.lineno
        if isinstance(node, ast.ClassDef | Function):
            self._visit_body(node)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.visit(node.value)
        elif not _is_skipped(node):
            if self._in_function:
                for start, end, operator in self._edits(node):
                    self._add(start, end, operator)
            self.generic_visit(node)

    def _visit_body(self, node: ast.ClassDef | Function) -> None:
        """Nothing of decorators, defaults and annotations."""
        before = self._in_function
        self._names.append(node.name)
        self._in_function = before or isinstance(node, Function)
        for statement in node.body:
            self.visit(statement)
        self._in_function = before
        self._names.pop()

    def _add(self, start: int, end: int, operator: str) -> None:
        line = self.source.count(b"\n", 0, start) + 1
        text = self._lines[line - 1].decode().strip()
        where = ".".join(self._names)
        self.mutations.append(Mutation(self.file, where, text, operator, 0, line, self._statement, start, end))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        place = (getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"))
        line, column, end_line, end_column = place
        return self._starts[line - 1] + column, self._starts[end_line - 1] + end_column

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()

    def _whole(self, node: ast.AST, replacement: str) -> tuple[int, int, str]:
        return *self._span(node), f"{self._text(node)} → {replacement}"

    def _between(self, left: ast.AST, right: ast.AST, old: str, new: str) -> Iterator[tuple[int, int, str]]:
        """The operator between two operands, which may be in brackets."""
        start, end = self._span(left)[1], self._span(right)[0]
        pattern = r"\s+".join(map(re.escape, old.split()))
        if match := re.search(pattern.encode(), self.source[start:end]):
            yield start + match.start(), start + match.end(), f"{old} → {new}"

    def _edits(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        match node:
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                for operator, one, other in zip(ops, [left, *comparators], comparators, strict=False):
                    yield from self._between(one, other, *SWAPPED[type(operator)])
            case ast.BoolOp(op=operator, values=values):
                old, new = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
                for one, other in pairwise(values):
                    yield from self._between(one, other, old, new)
            case ast.BinOp(left=one, op=operator, right=other) | ast.AugAssign(target=one, op=operator, value=other):
                if type(operator) in ARITHMETIC:
                    yield from self._between(one, other, *ARITHMETIC[type(operator)])
            case ast.UnaryOp(op=ast.Not()):
                start, _ = self._span(node)
                yield start, start + len("not"), "not → "
            case ast.Constant(value=bool() as value):
                yield self._whole(node, str(not value))
            case ast.Constant(value=int() as number):
                yield self._whole(node, str(number + 1))
            case ast.Constant(value=str() as text) if text:
                yield self._whole(node, '""')
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield self._whole(value, "None")
            case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
                yield self._whole(node, "pass")
            case ast.If(test=test):
                yield self._whole(test, f"not ({self._text(test)})")


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_skipped(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.JoinedStr():  # docstrings; parts of f-strings have no place
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in LOGS
        case ast.Call(func=ast.Name(id="cast")):
            return True
    return False
