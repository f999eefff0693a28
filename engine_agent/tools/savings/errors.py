"""Why there is nothing to report; the text is for people."""


class SavingsError(Exception):
    """What was asked could not be measured."""


class NotComparable(SavingsError):
    """The two sides were not what they are called: one that should hit missed, or the other way round."""


class CannotPlot(SavingsError):
    """Plots were asked for, and what draws them is not installed."""
