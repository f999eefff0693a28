"""Limit how deep a value from outside is nested, because later code recurses. Only for JSON's lists and objects."""

from typing import Any

DEEPEST = 30


def is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return any(isinstance(node, dict | list) for node in level)


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
