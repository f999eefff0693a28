"""A prompt on which something is moved to its end: what is left of it in its place, and where that once was."""

from dataclasses import dataclass

from engine_agent.divergence.marks import count, cut


@dataclass(frozen=True, slots=True)
class Line:
    marks: bytes  # of the whole, as it came
    pieces: tuple[tuple[int, int], ...]  # what is kept in its place: from, until
    moved: tuple[tuple[int, int], ...] = ()
    is_whole: bool = True  # its end is the prompt's end, so that something can follow there

    @property
    def kept(self) -> bytes:
        return b"".join(cut(self.marks, start, stop) for start, stop in self.pieces)

    @property
    def mended(self) -> bytes:
        """As it would be sent."""
        moved = self.moved if self.is_whole else ()
        return self.kept + b"".join(cut(self.marks, start, stop) for start, stop in moved)

    def place(self, index: int) -> int:
        """Where in the whole the mark is that is kept at `index`."""
        for start, stop in self.pieces:
            if index < stop - start:
                return start + index
            index -= stop - start
        return count(self.marks)


def line_of(marks: bytes, *, is_whole: bool = True) -> Line:
    return Line(marks, ((0, count(marks)),), is_whole=is_whole)


def line_without(line: Line, start: int, stop: int) -> Line:
    """What is kept from `start` until `stop` goes to the end."""
    kept: list[tuple[int, int]] = []
    moved: list[tuple[int, int]] = []
    passed = 0
    for first, last in line.pieces:
        low, high = (min(max(place - passed + first, first), last) for place in (start, stop))
        passed += last - first
        kept += [(first, low), (high, last)]
        moved.append((low, high))
    return Line(line.marks, _some(kept), line.moved + _some(moved), line.is_whole)


def _some(pieces: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple((start, stop) for start, stop in pieces if start < stop)
