"""The operators' forms on the settings pages. Limits only reject nonsense; services decide."""

import re
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django import forms

from controlplane.analytics.money import Price
from controlplane.dashboard.frame.forms import (
    LARGEST_REVISION,
    PLAIN,
    DayField,
    RefusableForm,
    WordField,
    after,
)
from kernels.formats import BASELINE, OFFERED
from tenants.policy import MODEL_PATTERN

LONG: Final = 2_000  # more than any service accepts, so that the service reports the real limit
SCOPES = (
    ("stats:read", "Read numbers"),
    ("policy:read", "Read namespaces, policies and the fleet"),
    ("policy:write", "Publish policies, pin, purge, roll out"),
    ("admin", "Manage organisations, keys, agents, prices, and all of the above"),
)
_AMOUNT = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", re.ASCII)
_MODEL = re.compile(MODEL_PATTERN.removesuffix("$"), re.ASCII)


class AmountField(forms.CharField):
    """A decimal, parsed from the text because a float would round it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=60, widget=forms.TextInput(attrs={"inputmode": "decimal", **PLAIN}), **kwargs)

    def clean(self, value: Any) -> Any:
        text = str(super().clean(value) or "")
        if not _AMOUNT.fullmatch(text):
            expected = "a price from 0 to 999999999.999999999, as 0.15"
            raise forms.ValidationError(f"{self.label}: “{text}” is not {expected}.")
        return Decimal(text)


class PriceForm(RefusableForm):
    """One price of the list. `revision` is the list's, as the page has shown it."""

    model = forms.CharField(
        label="Model",
        required=False,
        max_length=LONG,
        help_text="Empty: every model that has no price of its own.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    valid_from = DayField(label="Holds from, UTC day", help_text="Until the next price of the same model.")
    currency = forms.CharField(
        label="Currency",
        max_length=40,
        help_text="Three letters, one for the whole list.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    input = AmountField(label="Prompt, a million tokens")
    cached_input = AmountField(label="From the cache, a million tokens")
    output = AmountField(label="Generated, a million tokens")
    is_example = forms.BooleanField(label="An example: nobody asks this price", required=False)
    drop_examples = forms.BooleanField(label="Take all example prices out of the list", required=False)
    revision = forms.IntegerField(min_value=0, max_value=LARGEST_REVISION, widget=forms.HiddenInput)

    def clean_model(self) -> str:
        typed: str = self.cleaned_data["model"]
        if len(typed) > 200 or (typed and not _MODEL.fullmatch(typed)):
            raise forms.ValidationError(f"Model: “{typed[:80]}” cannot be the name of a model.")
        return typed

    def clean_currency(self) -> str:
        typed: str = self.cleaned_data["currency"]
        if not re.fullmatch(r"[A-Z]{3}", typed):
            raise forms.ValidationError(f"Currency: “{typed}” is not three capital letters, as EUR.")
        return typed

    def wanted(self, before: Sequence[Price]) -> list[Price]:
        """Return the list with this price in place of the model's price of the same day."""
        cleaned = self.cleaned_data
        new_price = Price(
            cleaned["model"],
            cleaned["valid_from"],
            cleaned["currency"],
            cleaned["input"],
            cleaned["cached_input"],
            cleaned["output"],
            is_example=cleaned["is_example"],
        )
        other_prices = [
            price for price in before if (price.model, price.valid_from) != (new_price.model, new_price.valid_from)
        ]
        return [*(price for price in other_prices if not (cleaned["drop_examples"] and price.is_example)), new_price]


class PriceRemoveForm(forms.Form):
    """The form of the confirmation page; `confirmed` is its button."""

    confirmed = forms.BooleanField()
    model = forms.CharField(required=False, max_length=200)
    valid_from = DayField(label="Day")
    revision = forms.IntegerField(min_value=0, max_value=LARGEST_REVISION, widget=forms.HiddenInput)


class TokenForm(RefusableForm):
    places = {"expires_at": "ends"}

    name = forms.CharField(label="Name", max_length=LONG, help_text="What uses it, as “ci” or “terraform”.")
    scopes = forms.MultipleChoiceField(
        label="What it may do",
        choices=SCOPES,
        widget=forms.CheckboxSelectMultiple,
        error_messages={
            "required": "What it may do: nothing is chosen; a token without scopes can do nothing.",
            "invalid_choice": "What it may do: “%(value)s” is no scope of a token.",
        },
    )
    ends = DayField(
        label="Last day it works", required=False, help_text="Until midnight UTC of that day. Empty: until revoked."
    )
    once = forms.UUIDField(widget=forms.HiddenInput)

    def clean_ends(self) -> datetime | None:
        return after(self.cleaned_data["ends"], "That is the last day there is: leave it empty instead.")


class GroupForm(RefusableForm):
    slug = forms.CharField(
        label="Slug",
        max_length=LONG,
        help_text="1 to 63 of a–z, 0–9 and inner hyphens. It never changes.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    name = forms.CharField(label="Name", max_length=LONG, help_text="For people.")


class OverrideForm(RefusableForm):
    """An override of a quality verdict. `model_revision` is typed; in other forms, `revision` is a hidden field."""

    places = {"revision": "model_revision"}

    model = forms.CharField(label="Model", max_length=200, widget=forms.TextInput(attrs=PLAIN))
    model_revision = forms.CharField(label="Revision", max_length=100, widget=forms.TextInput(attrs=PLAIN))
    backend = forms.CharField(label="Backend", max_length=20, widget=forms.TextInput(attrs=PLAIN))
    kv_dtype = WordField(label="KV format", choices=[(name, name) for name in OFFERED if name != BASELINE])
    note = forms.CharField(
        label="Why, for whoever asks later", max_length=LONG, help_text="At most 500 characters. It stays in the trail."
    )
    confirm = forms.BooleanField(
        label="Let it through without a passing result",
        error_messages={"required": "Tick this to let it through; nothing has happened."},
    )

    def clean_model(self) -> str:
        typed: str = self.cleaned_data["model"]
        if not _MODEL.fullmatch(typed):
            raise forms.ValidationError(f"Model: “{typed[:80]}” cannot be the name of a model.")
        return typed
