"""The error that stops a tool."""


class ToolError(Exception):
    """An error that the user can fix.

    Its parts, such as the file or option, the field and the problem, become the message; empty parts are left out.
    """

    def __init__(self, *parts: object) -> None:
        super().__init__(": ".join(text for part in parts if (text := str(part))))
