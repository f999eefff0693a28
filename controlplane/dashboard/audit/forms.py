"""The search form of the audit trail, parsed from the query string and written back to it. Pure."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from django import forms

from controlplane.dashboard.audit.rows import DEEDS
from controlplane.dashboard.frame.forms import DayField
from tenants.listing import TrailSought

MOST_WORDS: Final = 100


class AuditForm(forms.Form):
    verb = forms.CharField(
        label="What was done",
        required=False,
        widget=forms.Select(choices=[("", "anything"), *sorted(DEEDS.items(), key=lambda choice: choice[1])]),
    )
    who = forms.CharField(label="By whom", required=False)
    org = forms.CharField(label="Organisation", required=False)
    since = DayField(label="From (UTC)", required=False)
    until = DayField(label="To, inclusive (UTC)", required=False)
    find = forms.CharField(
        label="Text", required=False, help_text="In the verb, what it was done to, the request id or the address."
    )

    def __init__(self, query: Mapping[str, str]) -> None:
        super().__init__({name: query.get(name, "").replace("\0", "") for name in self.base_fields})

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = self.cleaned_data
        for name in ("verb", "who", "org", "find"):
            if len(cleaned.get(name, "")) > MOST_WORDS:
                label = self.fields[name].label
                message = (
                    f"{label}: “{cleaned[name][:20]}…” has {len(cleaned[name]):,} characters; "
                    f"{MOST_WORDS} are the most."
                )
                self.add_error(name, message)
        since, until = cleaned.get("since"), cleaned.get("until")
        if since and until and since > until:
            self.add_error("until", f"To: {until} is before {since}, from which on it is to be.")
        return cleaned

    def sought(self) -> TrailSought:
        cleaned = self.cleaned_data
        return TrailSought(
            verb=cleaned["verb"],
            who=cleaned["who"],
            organisation=cleaned["org"],
            since=_begins(cleaned["since"]),
            until=_begins(cleaned["until"], days=1),
            words=cleaned["find"],
        )

    def query(self, **further_parameters: Any) -> str:
        """Return the search as a query string, with further parameters."""
        parameters = {**{name: str(self.data[name]) for name in self.base_fields}, **further_parameters}
        return f"?{urlencode({name: value for name, value in parameters.items() if value not in ('', None)})}"

    @property
    def is_asked(self) -> bool:
        return any(self.data.values())


def _begins(day: date | None, *, days: int = 0) -> datetime | None:
    if day is None:
        return None
    try:
        return datetime.combine(day, time(), UTC) + timedelta(days=days)
    except OverflowError:
        return None  # the last representable day has no end to limit by
