"""What all forms share: services' objections beside the fields they are about, and names typed to confirm.

Limits in forms keep nonsense out; services decide.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, ClassVar, Final

from django import forms

from controlplane.dashboard.frame.words import ended, sentence
from tenants.errors import FieldProblem, StaleRevision

LARGEST_REVISION: Final = 2**31 - 1
PLAIN: Final = {"autocomplete": "off", "spellcheck": "false"}


class RefusableForm(forms.Form):
    """`places`: what services call a field, where it is called something else here. `names_fields`: what is said
    begins with the field's label. `names_others`: of what is not on the form, the name that services have for it."""

    places: ClassVar[Mapping[str, str]] = {}
    names_fields: ClassVar[bool] = True
    names_others: ClassVar[bool] = True

    def refuse(self, problems: Iterable[FieldProblem]) -> None:
        """What a service has against it, beside the field that it is about."""
        for problem in problems:
            name, said = self.places.get(problem.field, problem.field), ended(problem.message)
            if name not in self.fields:
                self.add_error(None, f"{problem.field}: {said}" if self.names_others else sentence(said))
            elif self.names_fields:
                self.add_error(name, f"{self.fields[name].label}: {said}")
            else:
                self.add_error(name, sentence(said))

    def outdated(self, error: StaleRevision, what: str) -> None:
        """Somebody was faster: the page shows how it is now, and what was typed stays."""
        told = f"Somebody changed {what} meanwhile: it is revision {error.actual} now, and this page shows it."
        self.add_error(None, f"{told} What you typed is kept: send it again to set it nevertheless.")


def typed_field(most: int = 300) -> forms.CharField:
    return forms.CharField(max_length=most, widget=forms.TextInput(attrs=PLAIN))


class ConfirmForm(RefusableForm):
    """The name of what is about to end, typed: nobody ends something while meaning another. `what` says whose name."""

    missing: ClassVar[str] = "Type {name} to confirm. Nothing has happened."
    different: ClassVar[str] = "“{typed}” is not {name}. Nothing has happened."

    typed = typed_field()

    def __init__(self, *args: Any, name: str, what: str = "", **more: Any) -> None:
        super().__init__(*args, **more)
        self.name = name
        self.fields["typed"].label = f"Type {name} to confirm"
        missing = f"Type {name}, {what}, to confirm." if what else self.missing.format(name=name)
        self.fields["typed"].error_messages["required"] = missing

    def clean_typed(self) -> str:
        typed: str = self.cleaned_data["typed"]
        if typed != self.name:
            raise forms.ValidationError(self.different.format(typed=typed, name=self.name))
        return typed


class DayField(forms.DateField):
    """A whole day. What is no day is named."""

    def __init__(self, **more: Any) -> None:
        widget = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
        super().__init__(input_formats=["%Y-%m-%d"], widget=widget, **more)

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except forms.ValidationError:
            raise forms.ValidationError(f"{self.label}: “{value}” is no day, as 2026-11-24.") from None


class WordField(forms.ChoiceField):
    """One of those there are; what is none of them is named."""

    def clean(self, value: Any) -> Any:
        try:
            return super().clean(value)
        except forms.ValidationError:
            known = ", ".join(str(name) for name, _ in self.choices if name)  # type: ignore[misc,union-attr]
            raise forms.ValidationError(f"{self.label}: “{str(value)[:80]}” is none of {known}.") from None


def after(day: date | None, otherwise: str) -> datetime | None:
    """When the day is over, in UTC; `otherwise` is what is said of the last day there is."""
    try:
        return None if day is None else datetime.combine(day, time(), UTC) + timedelta(days=1)
    except OverflowError:
        raise forms.ValidationError(otherwise) from None
