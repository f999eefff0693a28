"""Forms of the organisations pages. Limits only reject nonsense; services decide."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django import forms

from controlplane.dashboard.frame.forms import LARGEST_REVISION, ConfirmForm, RefusableForm, after
from tenants.models import Member

NAME = 200  # more than any service accepts, so that the service reports the real limit
SLUG_HINT = "1 to 63 of a–z, 0–9 and inner hyphens. It is part of addresses and never changes."
SCOPES = (
    ("infer", "Inference: send requests to the gateway"),
    ("stats:read", "Read numbers"),
    ("policy:read", "Read namespaces and policies"),
    ("policy:write", "Change policies, pin and purge; reads them, too"),
    ("admin", "Manage keys, members and namespaces, and all of the above but inference"),
)
ROLES = (
    ("viewer", "Viewer: reads numbers and policies"),
    ("editor", "Editor: also changes policies within the bounds"),
    ("admin", "Admin: also manages keys, members and namespaces"),
)
BROKEN = "This form came back incomplete: reload the page and send it again."
FEW = 20  # up to so many namespaces are ticked in a list; more are typed


class OrganisationsForm(RefusableForm):
    names_fields = False


def revision_field() -> forms.IntegerField:
    """Return a hidden field for the revision the page has shown."""
    messages = dict.fromkeys(("required", "invalid", "min_value", "max_value"), BROKEN)
    return forms.IntegerField(
        min_value=0, max_value=LARGEST_REVISION, widget=forms.HiddenInput, error_messages=messages
    )


class OrganisationForm(OrganisationsForm):
    slug = forms.CharField(
        label="Slug", max_length=NAME, help_text=SLUG_HINT, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    name = forms.CharField(label="Name", max_length=NAME, help_text="As people call it. It can be changed later.")


class RenameForm(OrganisationsForm):
    name = forms.CharField(label="Name", max_length=NAME)
    revision = revision_field()


class EndingForm(ConfirmForm):
    """A confirmation bound to the revision that the user has seen."""

    revision = revision_field()


class NamespaceForm(OrganisationsForm):
    """A new namespace. `groups`: slugs of agent groups; only operators choose one."""

    slug = forms.CharField(
        label="Slug", max_length=NAME, help_text=SLUG_HINT, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    name = forms.CharField(label="Name", max_length=NAME, required=False, help_text="Optional, for people.")
    group = forms.ChoiceField(label="Served by the agents of", required=False)

    def __init__(self, *args: Any, groups: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if groups:
            self.fields["group"].choices = groups  # type: ignore[attr-defined]
            self.fields["group"].initial = "default"
        else:
            del self.fields["group"]


class KeyForm(OrganisationsForm):
    """A new key. `slugs`: the organisation's namespaces, at most FEW + 1.

    `once` identifies the form, so that sending it twice creates one key.
    """

    places = {"expires_at": "ends"}

    name = forms.CharField(label="Name", max_length=NAME, help_text="What uses it, as “production” or “nightly evals”.")
    scopes = forms.MultipleChoiceField(
        label="What it may do", choices=SCOPES, initial=["infer"], widget=forms.CheckboxSelectMultiple
    )
    ends = forms.DateField(
        label="Last day it works",
        required=False,
        help_text="Until midnight UTC of that day. Empty: until it is revoked.",
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
        input_formats=["%Y-%m-%d"],
    )
    once = forms.UUIDField(widget=forms.HiddenInput, error_messages={"required": BROKEN, "invalid": BROKEN})

    def __init__(self, *args: Any, slugs: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        hint = "None: all of them, those made later included. A key with the scope admin cannot be bound to any."
        label, self.is_short = "Only in these namespaces", len(slugs) <= FEW
        self.fields["namespaces"] = (
            forms.MultipleChoiceField(
                label=label,
                required=False,
                choices=[(slug, slug) for slug in slugs],
                widget=forms.CheckboxSelectMultiple,
                help_text=hint,
            )
            if self.is_short
            else forms.CharField(
                label=label,
                required=False,
                max_length=70_000,
                help_text=f"Their slugs, with commas or spaces between. {hint}",
            )
        )

    def clean_namespaces(self) -> list[str]:
        namespaces = self.cleaned_data["namespaces"]
        return sorted(set(namespaces if self.is_short else namespaces.replace(",", " ").split()))

    def clean_ends(self) -> datetime | None:
        return after(
            self.cleaned_data["ends"], "That is the last day there is. Leave it empty for a key that never ends."
        )


class InviteForm(OrganisationsForm):
    email = forms.CharField(
        label="E-mail address", max_length=300, widget=forms.EmailInput(attrs={"autocomplete": "off"})
    )
    role = forms.ChoiceField(label="Role", choices=ROLES, initial=Member.Role.VIEWER)


class RoleForm(OrganisationsForm):
    role = forms.ChoiceField(label="Role", choices=ROLES)
