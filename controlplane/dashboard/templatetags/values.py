"""How values read on every page: filters that all templates have.

What a page says of its values is decided in pure functions; here a value becomes text, and nothing else.
"""

from datetime import datetime
from decimal import Decimal
from functools import partial

from django import template
from django.template.defaultfilters import date
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.analytics.money import displayed
from controlplane.analytics.money import text as exact_text
from controlplane.dashboard.frame.charts import bytes_text, share_text, value_text
from controlplane.dashboard.frame.states import Tag, tag_of
from controlplane.dashboard.frame.tiles import NONE, rate_text
from controlplane.dashboard.frame.words import counted, duration
from engine_agent.contracts.words import listed

register = template.Library()
register.filter("bytes", bytes_text)
register.filter("counted", counted)
register.filter("duration", duration)
register.filter("listed", listed)
register.filter("milliseconds", partial(value_text, "milliseconds"))
register.filter("rate", rate_text)
register.filter("share", share_text)


@register.filter
def count(value: float | None) -> str:
    """ "1,234"; a dash where it is not known."""
    return NONE if value is None else f"{int(value):,}"


@register.filter
def percent(share: float, digits: int | None = None) -> str:
    """Of a share from 0 to 1, with as many digits as it has or as are asked for: "12.5 %"."""
    return f"{round(share * 100, 7):g} %" if digits is None else f"{share * 100:.{digits}f} %"


@register.filter
def text(found: str) -> str:
    """As far as it is text: half a character of JSON's has no bytes."""
    return found.encode("utf-8", "replace").decode()


@register.filter
def price(amount: Decimal, currency: str = "") -> str:
    """All of it: "EUR 0.125"."""
    return f"{currency} {exact_text(amount)}".strip()


@register.filter
def money(amount: Decimal, currency: str) -> str:
    """As it can be paid: "EUR 1.01"."""
    return f"{currency} {displayed(amount, currency)}"


@register.filter(expects_localtime=True)
def moment(at: datetime | str | None, written: str = "j M Y, H:i:s") -> str:
    """A point in time, which the browser writes in the viewer's zone; nothing where there is none."""
    return _time("moment", at, written)


@register.filter(expects_localtime=True)
def clock(at: datetime | str | None) -> str:
    """The time of a day that the page has named."""
    return _time("clock", at, "H:i:s")


@register.filter(expects_localtime=True)
def age(at: datetime | str | None, written: str = r"\a\t H:i:s") -> str:
    """When something was found out, which the browser turns into how long ago that is."""
    return _time("age", at, written)


def _time(kind: str, at: datetime | str | None, written: str) -> str:
    """`at`: also as JSON has it."""
    if not at:
        return ""
    when = datetime.fromisoformat(at) if isinstance(at, str) else at
    return format_html('<time data-{} datetime="{}">{} UTC</time>', kind, date(when, "c"), date(when, written))


@register.filter
def state(found: Tag | str, kind: str = "") -> SafeString:
    """A word with its meaning as a colour: a tag, or the name of a state of that kind."""
    tag = found if isinstance(found, Tag) else tag_of(kind, found)
    return format_html('<span class="tag tag--{}">{}</span>', tag.tone, tag.word)
