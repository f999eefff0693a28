"""One thing that was examined: what is so, whether that is well, and what to do where it is not."""

from dataclasses import dataclass
from enum import StrEnum

TAKE_LONGER = "luminet doctor --seconds 60 waits longer"


class Status(StrEnum):
    OK = "ok"
    NOTE = "note"  # worth knowing, nothing to do
    WARNING = "warning"  # works, and may not for long
    BROKEN = "broken"
    NOT_EXAMINED = "not_examined"


@dataclass(frozen=True, slots=True)
class Finding:
    """`says` is one sentence for people; `do` a command to paste, or a sentence; `why` is of what was not examined."""

    name: str
    status: Status
    says: str
    do: str | None = None
    why: str | None = None


def counted(count: int, one: str, more: str) -> str:
    """`1 agent`, `3,000 agents`."""
    return f"{count:,} {one if count == 1 else more}"


def first_line(error: object) -> str:
    """As the library says it: libraries name hosts, ports and users, and no passwords."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class NotExamined(Exception):
    """What a check needs is not there: its text says what, and needs no full stop; `do` what brings it."""

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
