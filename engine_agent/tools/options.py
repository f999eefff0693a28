"""Option parsing that all tools share."""

import argparse
import math

from engine_agent.process.commands import Parser

MOST = 10**9


def new_parser(prog: str, description: str, examples: str = "") -> Parser:
    return Parser(
        prog=prog, description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def above_zero(text: str) -> float:
    number = float_read(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number above 0")
    return number


def float_read(text: str) -> float:
    """Return the number, or NaN if the text is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
