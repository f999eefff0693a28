"""The form for a test request."""

from collections.abc import Sequence
from typing import Any, Final

from django import forms

MOST_NAMESPACES: Final = 100
LONGEST_SECRET: Final = 200


class TestForm(forms.Form):
    """A test request. `slugs`: the first namespaces. Users who may not create keys paste one; it is not shown again."""

    namespace = forms.ChoiceField(label="In the namespace")
    key = forms.CharField(
        label="API key",
        max_length=LONGEST_SECRET,
        help_text="One of this organisation, with the scope infer. Used for this test, neither kept nor logged.",
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    def __init__(self, *args: Any, slugs: Sequence[str], makes_key: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["namespace"].choices = [(slug, slug) for slug in slugs]  # type: ignore[attr-defined]
        self.fields["namespace"].error_messages["invalid_choice"] = "There is no namespace “%(value)s” to choose here."
        if makes_key:
            del self.fields["key"]
