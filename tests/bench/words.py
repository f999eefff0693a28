"""Numbers, targets and verdicts as people read them."""

from engine_agent.tools.report import format_number
from tests.bench.figures import Figure, Target

SIGNS = {"<=": "≤", "<": "<", ">=": "≥", ">": ">", "==": "="}


def with_unit(number: str, unit: str) -> str:
    return f"{number} {unit}" if unit else number


def target_text(target: Target, unit: str) -> str:
    of = "" if target.of == "median" else f"{target.of} "
    tolerance = f" ± {_chosen(target.tolerance)}" if target.tolerance else ""
    return with_unit(f"{of}{SIGNS[target.comparison]} {_chosen(target.bound)}{tolerance}", unit)


def _chosen(value: float) -> str:
    """A number somebody chose is shown as written, 0.5 and not 0.500."""
    return format_number(value) if value == int(value) else f"{value:.4g}"


def verdict(figure: Figure) -> str:
    if figure.target is None:
        return "– no target"
    words = "✓ met" if figure.is_met else f"✗ short by {_shortfall_text(figure, figure.target)}"
    if figure.target.of == "median":
        return words
    # The table has no column for this statistic, so the value that was judged stands here.
    return f"{words} ({figure.target.of} {with_unit(format_number(figure.judged_value), figure.judged.unit)})"


def _shortfall_text(figure: Figure, target: Target) -> str:
    """A share of the bound; in the figure's unit where a share says nothing (no bound to share, or already in %)."""
    value, unit = figure.judged_value, figure.judged.unit
    shortfall = target.shortfall(value)
    if unit == "%":
        return f"{format_number(shortfall)} points"
    if not target.bound or target.tolerance:
        return with_unit(format_number(shortfall), unit)
    percent = shortfall / abs(target.bound) * 100
    if percent >= 100:  # "250 %" is hard to picture, a value 3.5 times its bound is not
        return f"a factor of {format_number(value / target.bound)}"
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.1f} %" if percent >= 0.1 else "less than 0.1 %"


def parameters_text(figure: Figure) -> str:
    return " · ".join(f"{name} {_parameter_text(value)}" for name, value in figure.parameters.items())


def _parameter_text(value: str | float | None) -> str:
    return str(value) if value is None or isinstance(value, str | bool) else format_number(value)
