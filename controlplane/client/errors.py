"""Errors on the way to a control plane and back, worded for the person at the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.client.tables import plain

SHOWN_AT_MOST = 50


class ClientError(Exception):
    """An error whose lines are printed; the command then ends with this exit status."""

    exit_status = 1

    def __str__(self) -> str:
        """Return the message without control characters, because it quotes text from outside."""
        return "\n".join(map(plain, super().__str__().split("\n")))


class Refused(ClientError):
    """The control plane refused a request; the error lists every field that its problem names."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = problem
        super().__init__("\n".join(_lines(status, problem)))

    @property
    def fields(self) -> list[tuple[str, str]]:
        return fields_of(self.problem.get("errors"))


def fields_of(errors: object) -> list[tuple[str, str]]:
    rows = errors if isinstance(errors, list) else []
    return [(plain(str(row.get("field"))), plain(str(row.get("message")))) for row in rows if isinstance(row, dict)]


def problem_lines(problems: Sequence[tuple[str, str]]) -> list[str]:
    return shortened([f"{field}: {message}" for field, message in problems], SHOWN_AT_MOST)


def shortened(lines: Sequence[str], most: int) -> list[str]:
    """Return the first lines, indented, and how many more there are."""
    footer = [f"  and {len(lines) - most} more"] if len(lines) > most else []
    return [f"  {line}" for line in lines[:most]] + footer


def _lines(status: int, problem: Mapping[str, Any]) -> list[str]:
    fields = fields_of(problem.get("errors"))
    title, detail = plain(str(problem.get("title") or "refused")), plain(str(problem.get("detail") or ""))
    lines = [f"{title} ({status})" + ("" if fields or not detail else f": {detail}"), *problem_lines(fields)]
    if status >= 500 and problem.get("request_id"):
        lines.append(f"  request_id: {plain(str(problem['request_id']))}")
    return lines
