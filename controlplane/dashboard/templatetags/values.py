"""Filters that format values, available in all templates.

Pure functions decide what a page says of a value; a filter only turns it into text.
"""

from datetime import datetime
from decimal import Decimal

from django import template
from django.template.defaultfilters import date
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.alerts.definitions import value_words as alert_value_words
from controlplane.analytics.money import displayed
from controlplane.analytics.money import text as exact_text
from controlplane.dashboard.alerts.rows import metric_name
from controlplane.dashboard.frame.charts import share_text, value_text
from controlplane.dashboard.frame.states import Tag, tag_of
from controlplane.dashboard.frame.tiles import NONE, measured, rate_text
from controlplane.dashboard.frame.words import backend_words, counted, duration, pairs_words, waiting_text
from controlplane.dashboard.policies.fields import reason_words, value_words, what_words
from controlplane.dashboard.rollouts.words import GUARDS, figure, limit
from controlplane.fleet.quality import format_words
from engine_agent.contracts.words import listed

register = template.Library()
register.filter("alert_value", alert_value_words)
register.filter("backend", backend_words)
register.filter("counted", counted)
register.filter("duration", duration)
register.filter("guard", lambda name: GUARDS.get(name, name))
register.filter("guard_figure", figure)
register.filter("guard_limit", limit)
register.filter("kv_format", format_words)
register.filter("listed", listed)
register.filter("measured", measured)
register.filter("metric", metric_name)
register.filter("pairs", pairs_words)
register.filter("policy_label", what_words)
register.filter("policy_value", value_words)
register.filter("rate", rate_text)
register.filter("reason", reason_words)
register.filter("share", share_text)
register.filter("unit", lambda value, unit: value_text(unit, value))
register.filter("waiting", waiting_text)
register.filter("without_stop", lambda sentence: sentence.removesuffix("."))


@register.filter("bytes")
def bytes_(value: float | None) -> str:
    """Format a size, as "3.1 GiB"; a dash for None."""
    return value_text("bytes", value)


@register.filter
def count(value: float | None) -> str:
    """Format a count, as "1,234"; a dash for None."""
    return NONE if value is None else f"{int(value):,}"


@register.filter
def percent(share: float, digits: int | None = None) -> str:
    """Format a share from 0 to 1 as "12.5 %", with `digits` decimals or as many as it has."""
    return f"{round(share * 100, 7):g} %" if digits is None else f"{share * 100:.{digits}f} %"


@register.filter
def text(found: str) -> str:
    """Replace lone surrogates, which JSON allows and UTF-8 cannot encode."""
    return found.encode("utf-8", "replace").decode()


@register.filter
def price(amount: Decimal, currency: str = "") -> str:
    """Return all digits: "EUR 0.125"."""
    return f"{currency} {exact_text(amount)}".strip()


@register.filter
def money(amount: Decimal, currency: str) -> str:
    """Round an amount to the currency's smallest unit: "EUR 1.01"."""
    return f"{currency} {displayed(amount, currency)}"


@register.filter(expects_localtime=True)
def moment(at: datetime | str | None, written: str = "j M Y, H:i:s") -> str:
    """Return a time element, which the browser converts to the viewer's zone; empty for None."""
    return _time("moment", at, written)


@register.filter(expects_localtime=True)
def clock(at: datetime | str | None) -> str:
    """Return a time of day, for a page that names the day."""
    return _time("clock", at, "H:i:s")


@register.filter(expects_localtime=True)
def age(at: datetime | str | None, written: str = r"\a\t H:i:s") -> str:
    """Return a time that the browser turns into an age, as "10 s ago"."""
    return _time("age", at, written)


def _time(kind: str, at: datetime | str | None, written: str) -> str:
    """Return the element. `at` may be an ISO string."""
    if not at:
        return ""
    when = datetime.fromisoformat(at) if isinstance(at, str) else at
    return format_html('<time data-{} datetime="{}">{} UTC</time>', kind, date(when, "c"), date(when, written))


@register.filter
def state(found: Tag | str, kind: str = "") -> SafeString:
    """Return a coloured tag: a `Tag`, or the name of a state of `kind`."""
    tag = found if isinstance(found, Tag) else tag_of(kind, found)
    return format_html('<span class="tag tag--{}">{}</span>', tag.tone, tag.word)
