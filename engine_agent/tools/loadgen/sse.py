"""Parse server-sent events as OpenAI's streams use them: return the data of each as soon as its last byte arrives."""

LONGEST_EVENT = 16 * 2**20


class EventReader:
    """Takes bytes as they come and returns complete events. Lines may end in any way that the standard allows."""

    def __init__(self) -> None:
        self._line = b""
        self._data: list[bytes] = []

    def push(self, chunk: bytes) -> list[str]:
        """Return the data of the events that end within `chunk`. Raises ValueError for an event that is too long."""
        self._line += chunk
        *lines, self._line = self._line.split(b"\n")
        if len(self._line) + sum(map(len, self._data)) > LONGEST_EVENT:
            raise ValueError("an event without an end")
        return [event for line in lines if (event := self._take(line.removesuffix(b"\r"))) is not None]

    def _take(self, line: bytes) -> str | None:
        """Process a line: an empty one ends an event; comments and other fields are ignored."""
        if line.startswith(b"data:"):
            self._data.append(line.removeprefix(b"data:").removeprefix(b" "))
        if line or not self._data:
            return None
        event, self._data = b"\n".join(self._data), []
        return event.decode("utf-8")
