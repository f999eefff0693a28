"""The form for a join token. Its limits only reject nonsense; services decide."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django import forms

from controlplane.dashboard.frame.forms import PLAIN, RefusableForm
from controlplane.fleet.join_tokens import MOST_USES

LASTS = (
    ("3600", "1 hour"),
    ("86400", "24 hours"),
    ("604800", "7 days"),
    ("2592000", "30 days"),
    ("31536000", "365 days"),
)
LONGEST = 200  # more than any service accepts, so that the service reports the real limit


class JoinTokenForm(RefusableForm):
    names_fields = False

    name = forms.CharField(
        label="Name",
        max_length=LONGEST,
        help_text="For people: agents keep it as what they joined with.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    kind = forms.ChoiceField(
        label="For",
        choices=[("engine", "An engine: a machine with a model"), ("gateway", "A gateway"), ("", "Either")],
        required=False,
        initial="engine",
    )
    group = forms.ChoiceField(label="Group", help_text="Whose namespaces they serve.")
    agent = forms.CharField(
        label="Agent’s id",
        max_length=LONGEST,
        required=False,
        help_text="Left empty: any. One that exists is taken over, and its credentials end.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    uses = forms.IntegerField(
        label="How many may join",
        min_value=1,
        max_value=MOST_USES,
        initial=1,
        required=False,
        help_text="Left empty: any number, until it ends.",
    )
    lasts = forms.ChoiceField(label="Good for", choices=LASTS, initial="3600")
    once = forms.UUIDField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, groups: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["group"].choices = groups  # type: ignore[attr-defined]

    def clean_lasts(self) -> timedelta:
        return timedelta(seconds=int(self.cleaned_data["lasts"]))
