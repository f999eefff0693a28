"""Cuts an engine's event stream at event ends, so that a stream that breaks off can still end with an error event."""

MOST_BEGUN_BYTES = 2**20  # a longer incomplete event is passed on as it arrives


class WholeEvents:
    def __init__(self) -> None:
        self._begun = b""

    def take(self, data: bytes) -> bytes:
        """Return the bytes to pass on: all up to the end of the last complete event."""
        buffer = self._begun + data
        end = max(_after_last(buffer, b"\n\n"), _after_last(buffer, b"\r\n\r\n"))
        if len(buffer) - end > MOST_BEGUN_BYTES:
            end = len(buffer)
        self._begun = buffer[end:]
        return buffer[:end]

    def rest(self) -> bytes:
        return self._begun


def _after_last(data: bytes, end: bytes) -> int:
    offset = data.rfind(end)
    return offset + len(end) if offset >= 0 else 0
