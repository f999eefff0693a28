"""Refuse a YAML file that would grow too large or is ambiguous, before any object is built from it."""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

import yaml

from controlplane.client.depth import DEEPEST
from controlplane.client.errors import ClientError

LARGEST = 8 * 1024 * 1024  # the control plane's limit
MOST_VALUES = 2_000_000
LONGEST_NUMBER = 64  # parsing takes time quadratic in its length
TOO_DEEP = f"is nested more than {DEEPEST} levels deep, or contains itself"
TOO_MUCH = f"is more than {MOST_VALUES} values or {LARGEST} bytes once its aliases are written out"
MERGE = "tag:yaml.org,2002:merge"
_STRING = "tag:yaml.org,2002:str"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq", "merge")}


def refuse(name: str, mark: Any, message: str) -> NoReturn:
    location = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
    raise ClientError(f"{name}:{location} {message}")


def outline_check(events: Iterable[yaml.Event], name: str) -> None:
    """Check depth and size event by event: composing nodes recurses, and libyaml's composer overflows its stack."""
    depth = values = 0
    for event in events:
        values += isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            refuse(name, event.start_mark, TOO_DEEP)
        if values > MOST_VALUES:
            refuse(name, event.start_mark, TOO_MUCH)


class Weight(NamedTuple):
    """The weight of a node with its content, counted for each alias; bytes are approximately those of JSON."""

    values: int
    bytes: int
    height: int


class NodeChecks:
    """Checks the nodes in one walk; each is visited once, however many aliases refer to it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._weights: dict[int, Weight] = {}

    def node(self, node: yaml.Node, depth: int = 0) -> Weight:
        weight = self._weights.get(id(node))
        if depth + (weight.height if weight else 0) > DEEPEST:
            self._refuse(node, TOO_DEEP)
        if weight is None:
            self._tag_check(node)
            weight = self._weights[id(node)] = self._weight(node, depth)
        return weight

    def _weight(self, node: yaml.Node, depth: int) -> Weight:
        if isinstance(node, yaml.ScalarNode):
            return Weight(1, _bytes(node), 0)
        values, size, height = 1, 3, 0
        for child in self._children(node):
            inside = self.node(child, depth + 1)
            values, size, height = values + inside.values, size + inside.bytes, max(height, inside.height)
        if isinstance(node, yaml.MappingNode):
            size += sum(_bytes(key) for key, _ in node.value)
        if values > MOST_VALUES or size > LARGEST:
            self._refuse(node, TOO_MUCH)
        return Weight(values, size, height + 1)

    def _children(self, node: yaml.Node) -> Iterator[yaml.Node]:
        if isinstance(node, yaml.MappingNode):
            self._keys_check(node)
            yield from (value for _, value in node.value)
        else:
            yield from node.value

    def _tag_check(self, node: yaml.Node) -> None:
        if node.tag not in _PLAIN:
            self._refuse(node, f"{_shown(node)} is read as a {_kind(node)} here; write it in quotes if it is text")
        if node.tag in _NUMBERS and len(node.value) > LONGEST_NUMBER:
            self._refuse(node, f"{_shown(node)}… is too long for a number; write it in quotes if it is text")

    def _keys_check(self, node: yaml.MappingNode) -> None:
        line_by_key: dict[Hashable, int] = {}
        for key, _ in node.value:
            if key.tag not in (_STRING, MERGE):
                self._refuse(key, f"{_shown(key)} as a name is read as a {_kind(key)}; write it in quotes")
            if key.value in line_by_key and key.tag != MERGE:
                self._refuse(key, f"{_shown(key)!r} is given again; it was on line {line_by_key[key.value]} already")
            line_by_key[key.value] = key.start_mark.line + 1

    def _refuse(self, node: yaml.Node, message: str) -> NoReturn:
        refuse(self._name, node.start_mark, message)


def _bytes(scalar: yaml.ScalarNode) -> int:
    """Return the bytes of a scalar, with quotes and separator."""
    return len(scalar.value.encode("utf-8", "surrogatepass")) + (3 if scalar.tag == _STRING else 1)


def _kind(node: yaml.Node) -> str:
    return str(node.tag.rpartition(":")[2])


def _shown(node: yaml.Node) -> str:
    return str(node.value)[:60] if isinstance(node, yaml.ScalarNode) else "a collection"
