"""What is read of the control plane's answers, checked where they arrive: behind this, what is wrong is ours."""

from typing import Any, TypeAlias

from controlplane.client.errors import ClientError

Shape: TypeAlias = Any  # a type; [the shape of each]; {name: shape of what must be there}; `object` is anything


class Unexpected(ClientError):
    """An answer, but not what our version of the control plane gives."""

    def __init__(self, where: str) -> None:
        super().__init__(f"an answer was not as expected ({where}): is this a Luminet of our version?")


def shaped(value: Any, shape: Shape, where: str = "answer") -> Any:
    """The value as it is; what it has besides is nobody's concern."""
    if isinstance(shape, dict):
        return _object(value, shape, where)
    if isinstance(shape, list):
        for one in shaped(value, list, where):
            shaped(one, shape[0], f"{where}[]")
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
