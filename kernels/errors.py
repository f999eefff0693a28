"""What a caller of an op or of the calculator did wrong, by the argument's name and with its value."""


class KernelError(Exception):
    """Everything this package raises on purpose."""


class InvalidArgument(KernelError, ValueError):
    """An argument that cannot be; raised before any memory is touched."""

    def __init__(self, argument: str, value: object, wanted: str) -> None:
        super().__init__(f"{argument}: {value!r} is not {wanted}")
        self.argument, self.value, self.wanted = argument, value, wanted
