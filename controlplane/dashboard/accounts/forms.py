"""Forms for sign-in and passwords. Limits only reject nonsense; services decide."""

from typing import Any

from django import forms

MAX_TYPED_PASSWORD = 1024


class SignInForm(forms.Form):
    email = forms.CharField(
        label="E-mail address",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True}),
    )
    password = forms.CharField(
        max_length=MAX_TYPED_PASSWORD,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )


def _new_password(label: str, *, hint: str = "", required: bool = True, **attrs: object) -> forms.CharField:
    widget = forms.PasswordInput(attrs={"autocomplete": "new-password", **attrs})
    return forms.CharField(
        label=label, help_text=hint, max_length=MAX_TYPED_PASSWORD, strip=False, widget=widget, required=required
    )


def _current_password(label: str) -> forms.CharField:
    widget = forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True})
    return forms.CharField(label=label, max_length=MAX_TYPED_PASSWORD, strip=False, widget=widget)


GOOD_PASSWORD = "At least 12 characters. A few unrelated words are easy to remember and hard to guess."  # noqa: S105


class NewPasswordForm(forms.Form):
    """The form for a user who opened a one-time link."""

    new = _new_password("New password", hint=GOOD_PASSWORD, autofocus=True)
    again = _new_password("New password, once more")

    def clean_again(self) -> str:
        again: str = self.cleaned_data["again"]
        if self.cleaned_data.get("new") not in (None, again):
            raise forms.ValidationError("This differs from the new password above.")
        return again

    def typed(self) -> dict[str, Any]:
        """Return the values as the services behind one-time links take them."""
        return {"password": self.cleaned_data["new"]}


class PasswordForm(NewPasswordForm):
    field_order = ("current", "new", "again")
    current = _current_password("Current password")
    new = _new_password("New password", hint=GOOD_PASSWORD)


class JoinForm(NewPasswordForm):
    """The form for an invited person, with or without an account: the page must not reveal which.

    A password typed twice is a new one. Its strength is checked before any account is looked up.
    """

    refused = (
        "No account here fits this password. If you are new, type the one you choose in both fields; if you forgot "
        "yours, an operator of this fleet can give you a new start."
    )
    new = _new_password(
        "Password",
        hint="The one you have here. If you are new, one you choose: at least 12 characters; a few unrelated words are "
        "easy to remember and hard to guess.",
        autofocus=True,
    )
    again = _new_password("The same password, once more", hint="Only if you are new here.", required=False)

    def clean_again(self) -> str:
        return super().clean_again() if self.cleaned_data["again"] else ""

    def typed(self) -> dict[str, Any]:
        return {**super().typed(), "is_new_password": bool(self.cleaned_data["again"])}
