"""Base classes for forms: service errors beside their fields, and typed confirmation.

Limits in forms only reject nonsense; services decide.
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
    """A form that shows the errors of a service.

    `places` maps a service's field name to the form's where they differ. `names_fields`: start messages with the label
    of the field. `names_others`: for a field not on the form, start them with the service's name.
    """

    places: ClassVar[Mapping[str, str]] = {}
    names_fields: ClassVar[bool] = True
    names_others: ClassVar[bool] = True

    def refuse(self, problems: Iterable[FieldProblem]) -> None:
        """Add a service's problems to their fields."""
        for problem in problems:
            name, message = self.places.get(problem.field, problem.field), ended(problem.message)
            if name not in self.fields:
                self.add_error(None, f"{problem.field}: {message}" if self.names_others else sentence(message))
            elif self.names_fields:
                self.add_error(name, f"{self.fields[name].label}: {message}")
            else:
                self.add_error(name, sentence(message))

    def outdated(self, error: StaleRevision, subject: str) -> None:
        """Add an error for a stale revision. The page shows the current state and keeps the input."""
        explanation = (
            f"Somebody changed {subject} meanwhile: it is revision {error.actual} now, and this page shows it."
        )
        self.add_error(None, f"{explanation} What you typed is kept: send it again to set it nevertheless.")


def typed_field(most: int = 300) -> forms.CharField:
    return forms.CharField(max_length=most, widget=forms.TextInput(attrs=PLAIN))


class ConfirmForm(RefusableForm):
    """A form that requires typing a name to confirm. `what` describes the name."""

    missing: ClassVar[str] = "Type {name} to confirm. Nothing has happened."
    different: ClassVar[str] = "“{typed}” is not {name}. Nothing has happened."

    typed = typed_field()

    def __init__(self, *args: Any, name: str, what: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
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
    """A field for a day. Its error message quotes an invalid value."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
        super().__init__(input_formats=["%Y-%m-%d"], widget=widget, **kwargs)

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except forms.ValidationError:
            raise forms.ValidationError(f"{self.label}: “{value}” is no day, as 2026-11-24.") from None


class WordField(forms.ChoiceField):
    """A choice field whose error quotes the invalid value and lists the choices."""

    def clean(self, value: Any) -> Any:
        try:
            return super().clean(value)
        except forms.ValidationError:
            choice_names = ", ".join(str(name) for name, _ in self.choices if name)  # type: ignore[misc,union-attr]
            raise forms.ValidationError(f"{self.label}: “{str(value)[:80]}” is none of {choice_names}.") from None


def after(day: date | None, otherwise: str) -> datetime | None:
    """Return the end of the day in UTC. `otherwise` is the error for the last representable day."""
    try:
        return None if day is None else datetime.combine(day, time(), UTC) + timedelta(days=1)
    except OverflowError:
        raise forms.ValidationError(otherwise) from None
