"""Numbers as people read them, each with its unit."""

TOKENS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def amount(tokens: float) -> str:
    """Three digits: 10.9 M, 512, 1.54 k."""
    for sign in reversed(TOKENS):
        if tokens >= TOKENS[sign] * 0.9995:
            scaled = tokens / TOKENS[sign]
            decimals = 0 if scaled >= 99.95 or not sign else 1 if scaled >= 9.995 else 2
            return f"{scaled:.{decimals}f} {sign}".rstrip()
    return f"{tokens:.0f}"


def percent(ratio: float | None) -> str:
    return "–" if ratio is None else f"{100 * ratio:.1f} %"


def span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
