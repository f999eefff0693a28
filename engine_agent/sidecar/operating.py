"""Decide from a holder's answer whether an operation succeeded, and what its receipt contains. No I/O."""

from collections.abc import Mapping
from typing import Any

MOST_PROBLEMS = 20  # that a receipt lists; it counts all
PROBLEM_LENGTH = 300


def operation_outcome(deed: str, answer: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Return success and result. An integrity check that found a problem has failed, even if the answer says "ok"."""
    is_ok = bool(answer.get("ok", True))
    result = {name: value for name, value in answer.items() if name != "ok"}
    if deed != "integrity":
        return is_ok, result
    problems = result.get("problems")
    if not isinstance(problems, list):
        return False, {"why": "it does not say what its check found"} | result
    return is_ok and not problems, result | _problems_told(problems)


def _problems_told(problems: list[Any]) -> dict[str, Any]:
    told = [str(one)[:PROBLEM_LENGTH] for one in problems[:MOST_PROBLEMS]]
    is_all = len(told) == len(problems)
    return {"problems": told} | ({} if is_all else {"problem_count": len(problems)})
