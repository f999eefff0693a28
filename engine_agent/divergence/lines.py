"""A prompt with parts moved to its end: the pieces that stay in place, and where they originally were."""

from dataclasses import dataclass

from engine_agent.divergence.marks import count, cut


@dataclass(frozen=True, slots=True)
class Line:
    marks: bytes  # the marks of the original prompt
    pieces: tuple[tuple[int, int], ...]  # (from, until) of the pieces that stay in place
    moved: tuple[tuple[int, int], ...] = ()
    is_whole: bool = True  # the marks reach the prompt's end, so that moved parts can follow

    @property
    def kept(self) -> bytes:
        return b"".join(cut(self.marks, start, stop) for start, stop in self.pieces)

    @property
    def mended(self) -> bytes:
        """Return the prompt with the moved parts at its end."""
        moved = self.moved if self.is_whole else ()
        return self.kept + b"".join(cut(self.marks, start, stop) for start, stop in moved)

    def place(self, index: int) -> int:
        """Return the original position of the mark at `index` of `kept`."""
        for start, stop in self.pieces:
            if index < stop - start:
                return start + index
            index -= stop - start
        return count(self.marks)


def line_of(marks: bytes, *, is_whole: bool = True) -> Line:
    return Line(marks, ((0, count(marks)),), is_whole=is_whole)


def line_without(line: Line, start: int, stop: int) -> Line:
    """Move the part of `kept` from `start` until `stop` to the end."""
    staying: list[tuple[int, int]] = []
    moved: list[tuple[int, int]] = []
    passed_marks = 0
    for first, last in line.pieces:
        low, high = (min(max(bound - passed_marks + first, first), last) for bound in (start, stop))
        passed_marks += last - first
        staying += [(first, low), (high, last)]
        moved.append((low, high))
    return Line(line.marks, _some(staying), line.moved + _some(moved), line.is_whole)


def _some(pieces: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple((start, stop) for start, stop in pieces if start < stop)
