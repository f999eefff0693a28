"""What stops a tool."""


class ToolError(Exception):
    """Something the caller can put right. Its text is for people: the file or option, the field, and what is wrong with
    it. An empty part is left out."""

    def __init__(self, *parts: object) -> None:
        super().__init__(": ".join(text for part in parts if (text := str(part))))
