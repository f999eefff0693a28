"""What people type, cleaned. Limits here only keep nonsense out; services decide."""

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


def _new_password(label: str, *, hint: str = "", **attrs: object) -> forms.CharField:
    widget = forms.PasswordInput(attrs={"autocomplete": "new-password", **attrs})
    return forms.CharField(label=label, help_text=hint, max_length=MAX_TYPED_PASSWORD, strip=False, widget=widget)


def _current_password(label: str, *, hint: str = "") -> forms.CharField:
    widget = forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True})
    return forms.CharField(label=label, help_text=hint, max_length=MAX_TYPED_PASSWORD, strip=False, widget=widget)


GOOD_PASSWORD = "At least 12 characters. A few unrelated words are easy to remember and hard to guess."  # noqa: S105


class NewPasswordForm(forms.Form):
    """For who was let in by a one-time link."""

    new = _new_password("New password", hint=GOOD_PASSWORD, autofocus=True)
    again = _new_password("New password, once more")

    def clean_again(self) -> str:
        again: str = self.cleaned_data["again"]
        if self.cleaned_data.get("new") not in (None, again):
            raise forms.ValidationError("This differs from the new password above.")
        return again


class PasswordForm(NewPasswordForm):
    field_order = ("current", "new", "again")
    current = _current_password("Current password")
    new = _new_password("New password", hint=GOOD_PASSWORD)


class FirstPasswordForm(NewPasswordForm):
    new = _new_password("Choose a password", hint=GOOD_PASSWORD, autofocus=True)
    again = _new_password("The same password, once more")


class KnownPasswordForm(forms.Form):
    """For who is invited and has an account already."""

    password = _current_password(
        "Your password", hint="The one you sign in with. Forgotten? An operator of this fleet can give you a new start."
    )
