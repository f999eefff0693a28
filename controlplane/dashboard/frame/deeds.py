"""What may be done with the thing a page shows, each with what follows from it; the worst only with its name typed."""

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.dashboard.frame.words import sentence
from tenants.errors import FieldProblem


@dataclass(frozen=True, slots=True)
class Deed:
    """`name` is of the address; `confirm`: what has to be typed, for what cannot be taken lightly."""

    name: str
    label: str
    consequence: str
    confirm: str = ""


def not_confirmed(typed: str, name: str) -> str:
    """Why nothing was done; empty where the name was typed."""
    if typed == name:
        return ""
    return f"“{typed[:80]}” is not {name}: nothing was done." if typed else f"Type {name}: nothing was done."


def problems_words(problems: Iterable[FieldProblem]) -> str:
    return " ".join(sentence(f"{one.message}.") for one in problems)
