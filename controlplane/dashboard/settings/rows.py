"""What the pages of Settings say of prices, tokens, groups and quality results. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

from controlplane.analytics.money import Book, Price, price_of, text
from controlplane.analytics.prices import Listed, Prices
from controlplane.dashboard.fleet.rows import Tag
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.policies.fields import value_words
from controlplane.fleet.models import QualityResult
from controlplane.fleet.quality import LET_THROUGH
from engine_agent.contracts.policy_fields import LABELS
from kernels.formats import BASELINE
from tenants.models import AgentGroup, OperatorToken

EVERY: Final = "every model without its own"
VERDICTS = {
    "passed": Tag("passed", "ok"),
    "failed": Tag("failed", "bad"),
    "unresolved": Tag("left open", "warn"),
    "overridden": Tag("let through unmeasured", "warn"),
}


@dataclass(frozen=True, slots=True)
class Fact:
    label: str
    value: str
    origin: str


def policy_facts(values: Mapping[str, Any], own: Mapping[str, Any]) -> list[Fact]:
    """What is in force where nobody says otherwise; `own`: what the fleet's policy says itself."""
    return [
        Fact(label, value_words(name, values[name]), "fleet policy" if name in own else "built in")
        for name, label in LABELS.items()
    ]


def policy_headline(revision: int, own: Mapping[str, Any]) -> str:
    if not own:
        return "The fleet’s policy says nothing of its own: what is built in holds"
    return f"Where nobody says otherwise, revision {revision} of the fleet’s policy holds"


@dataclass(frozen=True, slots=True)
class PriceRow:
    model: str
    name: str
    day: date
    state: Tag
    input: str
    cached_input: str
    output: str
    is_example: bool
    by: str
    at: datetime


def price_rows(found: Prices, today: date) -> list[PriceRow]:
    book = Book(found.prices)
    return [_price_row(one, book, today) for one in found.listed]


def instead_words(model: str, day: date, prices: Sequence[Price]) -> str:
    """Return which price counts from that day on once the model's price of that day is removed."""
    other = price_of([one for one in prices if (one.model, one.valid_from) != (model, day)], model, day)
    if other is None:
        return "No other price applies from that day on: savings are then shown in tokens, not in money."
    return f"The price of {other.model or EVERY} from {other.valid_from} applies then."


def _price_row(listed: Listed, book: Book, today: date) -> PriceRow:
    price = listed.price
    is_now = book.price_of(price.model, today) == price
    state = (
        Tag("to come", "info") if price.valid_from > today else Tag("in force", "ok") if is_now else Tag("over", "info")
    )
    return PriceRow(
        model=price.model,
        name=price.model or EVERY,
        day=price.valid_from,
        state=state,
        input=text(price.input),
        cached_input=text(price.cached_input),
        output=text(price.output),
        is_example=price.is_example,
        by=listed.created_by,
        at=listed.created_at,
    )


def prices_headline(found: Prices) -> str:
    total = len(found.listed)
    if not total:
        return "No token has a price yet"
    examples = sum(one.is_example for one in found.prices)
    kind = (
        "all of them examples"
        if examples == total
        else f"{examples} of them examples"
        if examples
        else "none an example"
    )
    if total == 1:
        kind = "an example" if examples else "no example"
    return f"{counted(total, 'price')} in {found.currency}, {kind}"


@dataclass(frozen=True, slots=True)
class TokenRow:
    id: str
    name: str
    prefix: str
    scopes: str
    whose: str
    by: str
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    state: Tag


def token_row(token: OperatorToken, now: datetime) -> TokenRow:
    is_over = token.expires_at is not None and token.expires_at <= now
    return TokenRow(
        id=str(token.pk),
        name=token.name,
        prefix=f"{token.prefix}…",
        scopes=", ".join(token.scopes),
        whose=token.user.email,
        by=token.created_by,
        created_at=token.created_at,
        last_used_at=token.last_used_at,
        expires_at=token.expires_at,
        state=Tag("ended", "warn") if is_over else Tag("works", "ok"),
    )


def tokens_headline(total: int) -> str:
    if not total:
        return "No operator has a token"
    return f"{counted(total, 'token')} may act for operators"


@dataclass(frozen=True, slots=True)
class GroupRow:
    slug: str
    name: str
    agents: int
    namespaces: int
    created_at: datetime
    why_stays: str


def group_row(group: AgentGroup, agents: int, namespaces: int, default: str) -> GroupRow:
    why = "new namespaces belong to it" if group.slug == default else ""
    if not why and (agents or namespaces):
        why = "agents or namespaces belong to it"
    return GroupRow(group.slug, group.name, agents, namespaces, group.created_at, why)


@dataclass(frozen=True, slots=True)
class QualityRow:
    model: str
    revision: str
    backend: str
    kv_dtype: str
    verdict: Tag
    serves: Tag
    figures: str
    note: str
    by: str
    at: datetime


def quality_row(result: QualityResult) -> QualityRow:
    may = result.kv_dtype == BASELINE or result.verdict in LET_THROUGH
    return QualityRow(
        model=result.model,
        revision=result.revision,
        backend=result.backend,
        kv_dtype=result.kv_dtype,
        verdict=VERDICTS.get(result.verdict, Tag(result.verdict, "info")),
        serves=Tag("may serve", "ok") if may else Tag("may not serve", "bad"),
        figures=_figures(result.figures),
        note=result.note,
        by=result.created_by,
        at=result.created_at,
    )


def _figures(figures: Mapping[str, Any]) -> str:
    """Only what was measured."""
    low, high = figures.get("byte_divergence_low"), figures.get("byte_divergence_high")
    parts = []
    if isinstance(low, int | float) and isinstance(high, int | float):
        parts.append(f"divergence {low:.2g} to {high:.2g} a byte")
    agreement = figures.get("agreement")
    if isinstance(agreement, int | float):
        parts.append(f"same next token in {int(agreement * 1000) / 10:.1f} %")
    if figures.get("tokens"):
        parts.append(f"over {figures['tokens']:,} tokens")
    return ", ".join(parts) or "no figures"


def quality_headline(results: Sequence[QualityResult]) -> str:
    if not results:
        return "Nothing was measured yet: bf16 alone may serve"
    may = sum(one.kv_dtype == BASELINE or one.verdict in LET_THROUGH for one in results)
    overridden = sum(one.verdict == "overridden" for one in results)
    said = f"{may} of {counted(len(results), 'format')} measured or decided on may serve"
    return f"{said}, {overridden} of them unmeasured" if overridden else said
