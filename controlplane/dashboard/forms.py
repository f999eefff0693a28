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


class PasswordForm(forms.Form):
    current = forms.CharField(
        label="Current password",
        max_length=MAX_TYPED_PASSWORD,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}),
    )
    new = forms.CharField(
        label="New password",
        help_text="At least 12 characters. A few unrelated words are easy to remember and hard to guess.",
        max_length=MAX_TYPED_PASSWORD,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    again = forms.CharField(
        label="New password, once more",
        max_length=MAX_TYPED_PASSWORD,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def clean_again(self) -> str:
        again: str = self.cleaned_data["again"]
        if self.cleaned_data.get("new") not in (None, again):
            raise forms.ValidationError("This differs from the new password above.")
        return again
