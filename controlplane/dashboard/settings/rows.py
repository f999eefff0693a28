"""Rows and headlines for prices, tokens, groups and quality results. Pure."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from controlplane.analytics.money import Book, Price, price_of
from controlplane.analytics.prices import Listed, Prices
from controlplane.dashboard.frame.states import Tag
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.policies.fields import value_words
from controlplane.fleet.models import QualityResult
from controlplane.fleet.quality import LET_THROUGH
from engine_agent.contracts.policy_fields import LABELS
from kernels.formats import BASELINE
from tenants.models import AgentGroup, OperatorToken
from tenants.models.organisations import DEFAULT

EVERY: Final = "every model without its own"


def policy_facts(values: Mapping[str, Any], policy_values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return each field's label, its value for the fleet and the origin. `policy_values`: set by the fleet's policy."""
    return [
        (label, value_words(name, values[name]), "fleet policy" if name in policy_values else "built in")
        for name, label in LABELS.items()
    ]


def policy_headline(revision: int, policy_values: Mapping[str, Any]) -> str:
    if not policy_values:
        return "The fleet’s policy says nothing of its own: what is built in holds"
    return f"Where nobody says otherwise, revision {revision} of the fleet’s policy holds"


def price_rows(prices: Prices, today: date) -> list[tuple[Listed, Tag]]:
    """Return each price, tagged as future, in force or over."""
    book = Book(prices.prices)
    return [(listed, _price_tag(listed.price, book, today)) for listed in prices.listed]


def instead_words(model: str, day: date, prices: Sequence[Price]) -> str:
    """Return which price applies from that day on once the model's price of that day is removed."""
    replacement = price_of([price for price in prices if (price.model, price.valid_from) != (model, day)], model, day)
    if replacement is None:
        return "No other price applies from that day on: savings are then shown in tokens, not in money."
    return f"The price of {replacement.model or EVERY} from {replacement.valid_from} applies then."


def _price_tag(price: Price, book: Book, today: date) -> Tag:
    if price.valid_from > today:
        return Tag("to come", "info")
    return Tag("in force", "ok") if book.price_of(price.model, today) == price else Tag("over", "info")


def prices_headline(prices: Prices) -> str:
    total = len(prices.listed)
    if not total:
        return "No token has a price yet"
    examples = sum(price.is_example for price in prices.prices)
    kind = (
        "all of them examples"
        if examples == total
        else f"{examples} of them examples"
        if examples
        else "none an example"
    )
    if total == 1:
        kind = "an example" if examples else "no example"
    return f"{counted(total, 'price')} in {prices.currency}, {kind}"


def token_tag(token: OperatorToken, now: datetime) -> Tag:
    is_over = token.expires_at is not None and token.expires_at <= now
    return Tag("ended", "warn") if is_over else Tag("works", "ok")


def tokens_headline(total: int) -> str:
    if not total:
        return "No operator has a token"
    return f"{counted(total, 'token')} may act for operators"


def why_stays(group: AgentGroup, agents: int, namespaces: int) -> str:
    """Return why a group cannot be deleted; empty if it can."""
    if group.slug == DEFAULT:
        return "new namespaces belong to it"
    return "agents or namespaces belong to it" if agents or namespaces else ""


def may_serve(quality_result: QualityResult) -> bool:
    return quality_result.kv_dtype == BASELINE or quality_result.verdict in LET_THROUGH


def figures_words(figures: Mapping[str, Any]) -> str:
    """Return the measured figures in one line."""
    agreement = figures.get("agreement")
    parts = [divergence_words(figures)]
    if isinstance(agreement, int | float):
        parts.append(f"same next token in {int(agreement * 1000) / 10:.1f} %")
    if figures.get("tokens"):
        parts.append(f"over {figures['tokens']:,} tokens")
    return ", ".join(filter(None, parts)) or "no figures"


def divergence_words(figures: Mapping[str, Any]) -> str:
    low, high = figures.get("byte_divergence_low"), figures.get("byte_divergence_high")
    has_numbers = isinstance(low, int | float) and isinstance(high, int | float)
    return f"divergence {low:.2g} to {high:.2g} a byte" if has_numbers else ""


def quality_headline(results: Sequence[QualityResult]) -> str:
    if not results:
        return "Nothing was measured yet: bf16 alone may serve"
    serving_count = sum(map(may_serve, results))
    overridden = sum(quality_result.verdict == "overridden" for quality_result in results)
    summary = f"{serving_count} of {counted(len(results), 'format')} measured or decided on may serve"
    return f"{summary}, {overridden} of them unmeasured" if overridden else summary
