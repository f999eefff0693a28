"""Validate the control plane's answers where they arrive, so that an error after this point is a bug of ours."""

from typing import Any, TypeAlias

from controlplane.client.errors import ClientError

Shape: TypeAlias = Any  # a type; [the shape of each item]; {name: shape of a required member}; `object`: anything


class Unexpected(ClientError):
    """An answer without the structure that our version of the control plane sends."""

    def __init__(self, path: str) -> None:
        super().__init__(f"an answer was not as expected ({path}): is this a Luminet of our version?")


def shaped(value: Any, shape: Shape, path: str = "answer") -> Any:
    """Return the value unchanged if it has this shape; additional members are ignored. Raise Unexpected otherwise."""
    if isinstance(shape, dict):
        return _object(value, shape, path)
    if isinstance(shape, list):
        for element in shaped(value, list, path):
            shaped(element, shape[0], f"{path}[]")
    elif not isinstance(value, shape):
        raise Unexpected(f"{path} is {type(value).__name__}")
    return value


def _object(value: Any, shape: dict[str, Shape], path: str) -> Any:
    shaped(value, dict, path)
    for name, inner in shape.items():
        if name not in value:
            raise Unexpected(f"{path} has no {name!r}")
        shaped(value[name], inner, f"{path}.{name}")
    return value
