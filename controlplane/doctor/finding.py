"""A finding: one examined fact, whether it is good, and what to do if not."""

from dataclasses import dataclass
from enum import StrEnum

TAKE_LONGER = "luminet doctor --seconds 60 waits longer"


class Status(StrEnum):
    OK = "ok"
    NOTE = "note"  # worth knowing, nothing to do
    WARNING = "warning"  # it works, and may soon fail
    BROKEN = "broken"
    NOT_EXAMINED = "not_examined"


@dataclass(frozen=True, slots=True)
class Finding:
    """`says`: one sentence for people; `do`: a command to paste, or a sentence; `why`: the reason for not examining."""

    name: str
    status: Status
    says: str
    do: str | None = None
    why: str | None = None


def counted(count: int, singular: str, plural: str) -> str:
    """Return `1 agent` or `3,000 agents`."""
    return f"{count:,} {singular if count == 1 else plural}"


def first_line(error: object) -> str:
    """Return the error's first line as the library words it: it may name hosts, ports and users, but no passwords."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class NotExamined(Exception):
    """Something that a check needs is missing. The text says what, without a full stop; `do` says how to get it."""

    def __init__(self, why: str, do: str | None = None) -> None:
        super().__init__(why)
        self.do = do


def ok(name: str, says: str) -> Finding:
    return Finding(name, Status.OK, says)


def note(name: str, says: str, do: str | None = None) -> Finding:
    return Finding(name, Status.NOTE, says, do)


def warning(name: str, says: str, do: str) -> Finding:
    return Finding(name, Status.WARNING, says, do)


def broken(name: str, says: str, do: str) -> Finding:
    return Finding(name, Status.BROKEN, says, do)


def not_examined(name: str, why: str, do: str | None = None) -> Finding:
    return Finding(name, Status.NOT_EXAMINED, f"{name[:1].upper()}{name[1:]}: {why}", do, why)
