"""Decide from a holder's answer whether an operation succeeded, and what its receipt contains. No I/O."""

from collections.abc import Mapping
from typing import Any

MOST_PROBLEMS = 20  # that a receipt lists; it counts all
PROBLEM_LENGTH = 300


def operation_outcome(action: str, answer: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Return success and result. An integrity check that found a problem has failed, even if the answer says "ok"."""
    is_ok = bool(answer.get("ok", True))
    result = {name: value for name, value in answer.items() if name != "ok"}
    if action != "integrity":
        return is_ok, result
    problems = result.get("problems")
    if not isinstance(problems, list):
        return False, {"why": "it does not say what its check found"} | result
    return is_ok and not problems, result | _problems_told(problems)


def _problems_told(problems: list[Any]) -> dict[str, Any]:
    texts = [str(problem)[:PROBLEM_LENGTH] for problem in problems[:MOST_PROBLEMS]]
    is_all = len(texts) == len(problems)
    return {"problems": texts} | ({} if is_all else {"problem_count": len(problems)})
