"""The text of an alert: what is wrong, by how much, and what to do next. Pure."""

from controlplane.alerts.definitions import METRICS, Comparison, value_words

WORDS_LENGTH = 500


def alert_words(
    *, metric: str, place: str, value: float, comparison: Comparison, threshold: float, seconds: int
) -> str:
    """Return one sentence for everyone who may see the alert. It names only the alert's own subject."""
    definition = METRICS[metric]
    sentence = definition.says.format(value=value_words(definition.unit, value))
    return f"{place}: {sentence}; {condition_words(metric, comparison, threshold, seconds)}."[:WORDS_LENGTH]


def condition_words(metric: str, comparison: Comparison, threshold: float, seconds: int) -> str:
    """Return the condition of a rule as a phrase."""
    duration = f" for {value_words('seconds', seconds)}" if seconds else ""
    return f"the rule is {comparison} {value_words(METRICS[metric].unit, threshold)}{duration}"
