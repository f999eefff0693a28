"""Cuts an engine's event stream at event ends, so that a stream that breaks off can still end with an error event."""

MOST_BEGUN_BYTES = 2**20  # a longer incomplete event is passed on as it arrives


class WholeEvents:
    def __init__(self) -> None:
        self._begun = b""

    def take(self, data: bytes) -> bytes:
        """Return the bytes to pass on: all up to the end of the last complete event."""
        held = self._begun + data
        end = max(_after_last(held, b"\n\n"), _after_last(held, b"\r\n\r\n"))
        if len(held) - end > MOST_BEGUN_BYTES:
            end = len(held)
        self._begun = held[end:]
        return held[:end]

    def rest(self) -> bytes:
        return self._begun


def _after_last(data: bytes, end: bytes) -> int:
    place = data.rfind(end)
    return place + len(end) if place >= 0 else 0
