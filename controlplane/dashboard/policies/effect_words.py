"""Formatting of a revision's forecast and measured effect. Pure."""

from controlplane.analytics.predicting import Effect


def predicted_words(effect: Effect) -> str:
    """Return the forecast change; empty without one."""
    forecast = effect.foretold
    return f"{percent_text(forecast.before)} → {percent_text(forecast.after)}" if forecast else ""


def error_words(effect: Effect) -> str:
    return f"± {100 * effect.foretold.error:.1f} points" if effect.foretold else ""


def measured_words(effect: Effect) -> str:
    """Return the hit rates a day before and up to a day after; empty if none was measured after."""
    if effect.measured_after is None:
        return ""
    before = "nothing asked" if effect.measured_before is None else percent_text(effect.measured_before)
    return f"{before} → {percent_text(effect.measured_after)}"


def percent_text(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"
