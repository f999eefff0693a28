"""What is typed on the page of blocks."""

from django import forms

from controlplane.dashboard.frame.forms import RefusableForm


class BlocksForm(RefusableForm):
    tokens = forms.IntegerField(label="Tokens", min_value=1, max_value=10_000_000)
