"""An alert in words: what is the matter, by how much, and what to do next. Pure."""

from controlplane.alerts.definitions import METRICS, Comparison, value_words

WORDS_LENGTH = 500


def alert_words(
    *, metric: str, place: str, value: float, comparison: Comparison, threshold: float, seconds: int
) -> str:
    """One sentence for whoever may see the alert: it names nothing but its own place."""
    known = METRICS[metric]
    said = known.says.format(value=value_words(known.unit, value))
    return f"{place}: {said}; {condition_words(metric, comparison, threshold, seconds)}."[:WORDS_LENGTH]


def condition_words(metric: str, comparison: Comparison, threshold: float, seconds: int) -> str:
    """When a rule fires, as people say it."""
    lasting = f" for {value_words('seconds', seconds)}" if seconds else ""
    return f"the rule is {comparison} {value_words(METRICS[metric].unit, threshold)}{lasting}"
