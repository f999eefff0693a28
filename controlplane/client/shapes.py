"""Validate the control plane's answers where they arrive, so that an error after this point is a bug of ours."""

from typing import Any, TypeAlias

from controlplane.client.errors import ClientError

Shape: TypeAlias = Any  # a type; [the shape of each item]; {name: shape of a required member}; `object`: anything


class Unexpected(ClientError):
    """An answer without the structure that our version of the control plane sends."""

    def __init__(self, where: str) -> None:
        super().__init__(f"an answer was not as expected ({where}): is this a Luminet of our version?")


def shaped(value: Any, shape: Shape, where: str = "answer") -> Any:
    """Return the value unchanged if it has this shape; additional members are ignored. Raise Unexpected otherwise."""
    if isinstance(shape, dict):
        return _object(value, shape, where)
    if isinstance(shape, list):
        for element in shaped(value, list, where):
            shaped(element, shape[0], f"{where}[]")
    elif not isinstance(value, shape):
        raise Unexpected(f"{where} is {type(value).__name__}")
    return value


def _object(value: Any, shape: dict[str, Shape], where: str) -> Any:
    shaped(value, dict, where)
    for name, inner in shape.items():
        if name not in value:
            raise Unexpected(f"{where} has no {name!r}")
        shaped(value[name], inner, f"{where}.{name}")
    return value
