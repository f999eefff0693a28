"""Reading the file people keep: YAML or JSON, safely, and refused with a line where it could mean two things."""

import json
import sys
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from controlplane.client.errors import ClientError

LARGEST = 8 * 1024 * 1024  # what the control plane takes
MOST_NODES = 2_000_000
DEEPEST = 30
MERGE = "tag:yaml.org,2002:merge"
_PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq", "merge")}
_STRING = "tag:yaml.org,2002:str"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times faster, where it is there


def document_load(name: str) -> Any:
    """What the file says; `-` is what comes in on standard input."""
    text = _text(name)
    shown = "standard input" if name == "-" else name
    value = _json(text, shown) if text.lstrip().startswith("{") else None
    return _yaml(text, shown) if value is None else value


def document_dump(document: Any) -> str:
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120))


def _text(name: str) -> str:
    try:
        data = sys.stdin.buffer.read(LARGEST + 1) if name == "-" else _read(Path(name))
    except OSError as error:
        raise ClientError(f"{name}: {error.strerror or error}") from None
    if len(data) > LARGEST:
        raise ClientError(f"{name}: is larger than {LARGEST} bytes, the most a control plane takes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ClientError(f"{name}: is not UTF-8 at byte {error.start}") from None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _json(text: str, name: str) -> Any:
    """None where it is none: YAML has braces too."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [key for key, _ in pairs]
            twice = next(key for key in names if names.count(key) > 1)
            raise ClientError(f"{name}: {twice!r} is given more than once in one object")
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None


def _yaml(text: str, name: str) -> Any:
    try:
        with _loading(text) as loader:
            node = loader.get_single_node()
            if node is None:
                raise ClientError(f"{name}: is empty")
            _Checks(name).node(node, 0)
            return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        raise ClientError(f"{name}:{where} {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ClientError(f"{name}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ClientError(f"{name}: cannot be read: {error}") from None


@contextmanager
def _loading(text: str) -> Iterator[Any]:
    loader = _Loader(text)
    try:
        yield loader
    finally:
        loader.dispose()


class _Checks:
    """One walk over the nodes, before anything is built of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sizes: dict[int, int] = {}  # of nodes with all that is in them, as aliases repeat it

    def node(self, node: yaml.Node, depth: int) -> int:
        if depth > DEEPEST:
            self._refuse(node, f"is nested more than {DEEPEST} levels deep, or contains itself")
        if id(node) in self._sizes:
            return self._sizes[id(node)]
        if node.tag not in _PLAIN:
            kind = node.tag.rpartition(":")[2]
            self._refuse(node, f"{_shown(node)} is read as a {kind} here; write it in quotes if it is text")
        size = 1 + sum(self.node(child, depth + 1) for child in self._children(node))
        if size > MOST_NODES:
            self._refuse(node, "its aliases add up to too much")
        self._sizes[id(node)] = size
        return size

    def _children(self, node: yaml.Node) -> list[yaml.Node]:
        if isinstance(node, yaml.MappingNode):
            self._keys_check(node)
            return [value for _, value in node.value]
        return list(node.value) if isinstance(node, yaml.SequenceNode) else []

    def _keys_check(self, node: yaml.MappingNode) -> None:
        seen: dict[Hashable, int] = {}
        for key, _ in node.value:
            if key.tag not in (_STRING, MERGE):
                kind = key.tag.rpartition(":")[2]
                self._refuse(key, f"{_shown(key)} as a name is read as a {kind}; write it in quotes")
            if key.value in seen and key.tag != MERGE:
                self._refuse(key, f"{key.value!r} is given again; it was on line {seen[key.value]} already")
            seen[key.value] = key.start_mark.line + 1

    def _refuse(self, node: yaml.Node, message: str) -> None:
        mark = node.start_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        raise ClientError(f"{self._name}:{where} {message}")


def _shown(node: yaml.Node) -> str:
    return str(node.value)[:60] if isinstance(node, yaml.ScalarNode) else "a collection"
