"""The front page of an organisation: its headline, namespaces, and this month by model. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from controlplane.analytics.invoices import Invoice
from controlplane.analytics.money import total
from controlplane.analytics.owned import Owned
from controlplane.dashboard.frame.tiles import LEAST_REQUESTS, measured, rate_text
from controlplane.dashboard.frame.words import ORIGINS, counted
from controlplane.dashboard.home.customer import Fact, lifetime
from controlplane.dashboard.organisations.list_rows import Counts, is_little
from tenants.homes import NamespaceHome
from tenants.limits import Limits
from tenants.models import Organisation

RATES = (
    ("requests_per_minute", "requests a minute"),
    ("tokens_per_minute", "tokens a minute"),
    ("concurrent_requests", "requests at once"),
)


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    home: NamespaceHome
    counts: Counts
    resident: int

    @property
    def slug(self) -> str:
        return self.home.namespace.slug

    @property
    def lifetime(self) -> Fact:
        return lifetime(self.home.effective)

    @property
    def dtype(self) -> Fact:
        return Fact(self.home.effective.values["kv_dtype"], ORIGINS[self.home.effective.origin["kv_dtype"]])

    @property
    def is_little(self) -> bool:
        return is_little(self.counts)


@dataclass(frozen=True, slots=True)
class ModelLine:
    """The sums of one model over all days; `amount` is None if it has no price."""

    model: str
    requests: int
    prompt: int
    cached: int
    generated: int
    amount: Decimal | None


def headline(organisation: Organisation, owned: Owned, namespaces: int) -> str:
    name = organisation.name
    if organisation.is_suspended:
        return f"{name} is suspended: its keys are refused"
    sums = owned.total
    if not sums["requests"]:
        return f"{name} has {counted(namespaces, 'namespace')} and no request in the last 24 h"
    if sums["requests"] < LEAST_REQUESTS or not sums["prompt_tokens"]:
        return f"{name} has had {counted(sums['requests'], 'request')} in the last 24 h so far"
    hit_rate = rate_text(sums["cached_tokens"], sums["prompt_tokens"])
    window = measured(owned.covered_seconds, owned.window_seconds)
    return f"{name} has {hit_rate} of its prompt tokens served from cache, over {window}"


def limits_line(limits: Limits) -> str:
    """Return the limits as "600 requests a minute, 20,000 tokens a minute"."""
    limit_texts = [f"{value:,} {words}" for field, words in RATES if (value := getattr(limits, field)) is not None]
    return ", ".join(limit_texts) or "no limit on requests or tokens"


def namespaces_title(total: int, find: str) -> str:
    if find:
        return f"{counted(total, 'namespace')} {'fits' if total == 1 else 'fit'} “{find}”"
    return f"{total:,} namespaces, each with a cache of its own" if total != 1 else "One namespace, the default"


def model_lines(invoice: Invoice) -> Iterator[ModelLine]:
    for model in sorted({line.model for line in invoice.lines}):
        lines = [line for line in invoice.lines if line.model == model]
        amounts = [line.cost.amount for line in lines if line.cost is not None]
        yield ModelLine(
            model=model,
            requests=sum(line.requests for line in lines),
            prompt=sum(line.tokens.prompt for line in lines),
            cached=sum(line.tokens.cached for line in lines),
            generated=sum(line.tokens.generated for line in lines),
            amount=total(amounts) if amounts and invoice.currency is not None else None,
        )
