"""Actions offered on a page, each with its consequence; the most destructive require typing a name."""

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.dashboard.frame.words import sentence
from tenants.errors import FieldProblem


@dataclass(frozen=True, slots=True)
class Deed:
    """An action. `name` is its part of the URL; `confirm` is the text to type for a destructive action."""

    name: str
    label: str
    consequence: str
    confirm: str = ""


def not_confirmed(typed: str, name: str) -> str:
    """Return the error for a wrong confirmation; empty if `typed` matches `name`."""
    if typed == name:
        return ""
    return f"“{typed[:80]}” is not {name}: nothing was done." if typed else f"Type {name}: nothing was done."


def problems_words(problems: Iterable[FieldProblem]) -> str:
    return " ".join(sentence(f"{problem.message}.") for problem in problems)
