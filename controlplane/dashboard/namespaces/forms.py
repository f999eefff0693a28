"""Forms of the namespace pages. Limits only reject nonsense; services decide."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from django import forms
from pydantic import TypeAdapter, ValidationError

from controlplane.dashboard.frame.forms import LARGEST_REVISION, ConfirmForm, RefusableForm, typed_field
from controlplane.dashboard.frame.words import sentence
from tenants.fields import NAME_LENGTH
from tenants.policy import ModelName
from tenants.services.pins import MAX_CONTENT_BYTES

MOST_MESSAGES = 1_000
MOST_ROLE = 40
MOST_DEPTH = 32
MOST_LINTED = 400_000
_MODEL: TypeAdapter[str] = TypeAdapter(ModelName)


class PlainForm(RefusableForm):
    names_fields = names_others = False


class NamespaceForm(PlainForm):
    """A namespace's name. `revision` is the one the page has shown."""

    name = forms.CharField(
        label="Name",
        required=False,
        max_length=NAME_LENGTH,
        help_text="For people; requests and paths go by the slug, which stays.",
    )
    revision = forms.IntegerField(min_value=0, max_value=LARGEST_REVISION, widget=forms.HiddenInput)


class ConfirmedForm(ConfirmForm):
    """A confirmation for what cannot be undone, by typing the target's name."""

    names_fields = names_others = False
    missing = "Type {name}: nothing has been done yet."
    different = "“{typed}” is not {name}: nothing has been done."

    typed = typed_field(200)

    def add_prefix(self, field_name: str) -> str:
        return super().add_prefix("confirm" if field_name == "typed" else field_name)


class NamespaceDeleteForm(ConfirmedForm):
    revision = forms.IntegerField(min_value=0, max_value=LARGEST_REVISION, widget=forms.HiddenInput)


class PurgeForm(ConfirmedForm):
    include_pins = forms.BooleanField(
        label="Purge pins, too", required=False, help_text="Left out, pins are computed again and stay."
    )


class PinForm(PlainForm):
    """A form for a pin. No page shows the content again once it is accepted."""

    places = {"messages": "content", "prompt": "content"}

    name = forms.CharField(label="Name", max_length=NAME_LENGTH)
    model = forms.CharField(
        label="Model",
        max_length=200,
        help_text="In whose cache it is kept.",
        widget=forms.TextInput(attrs={"list": "models"}),
    )
    kind = forms.ChoiceField(
        label="What it holds",
        choices=[("messages", "Messages of a chat, as JSON"), ("prompt", "The text a prompt begins with")],
        initial="messages",
    )
    content = forms.CharField(
        label="Content",
        strip=False,
        max_length=MAX_CONTENT_BYTES,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false"}),
        help_text='As the gateway takes it: [{"role": "system", "content": "…"}]. It is encrypted, goes to engines '
        "alone, and is never shown again.",
    )
    expires_at = forms.DateTimeField(
        label="Ends, UTC",
        required=False,
        help_text="Left empty: never.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
    )

    def clean_model(self) -> str:
        typed: str = self.cleaned_data["model"]
        try:
            return _MODEL.validate_python(typed)
        except ValidationError:
            raise forms.ValidationError(f"“{typed}” cannot be the name of a model.") from None

    def clean_expires_at(self) -> datetime | None:
        typed: datetime | None = self.cleaned_data["expires_at"]
        return None if typed is None else typed.replace(tzinfo=UTC)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = self.cleaned_data
        if "content" in cleaned and "kind" in cleaned:
            try:
                cleaned["read"] = (
                    cleaned["content"] if cleaned["kind"] == "prompt" else messages_read(cleaned["content"])
                )
                json.dumps(cleaned["read"], ensure_ascii=False).encode()
            except (ValueError, RecursionError) as problem:
                message = str(problem) if isinstance(problem, BadMessages) else "this holds what is no text"
                self.add_error("content", sentence(message))
        return cleaned


class BadMessages(ValueError):
    """Invalid messages; the text says why."""


def messages_read(typed: str) -> list[dict[str, Any]]:
    """Parse a chat's messages from JSON, or raise BadMessages."""
    try:
        messages = json.loads(typed, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise BadMessages(f"this is no JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise BadMessages("this is nested too deep") from None
    if isinstance(messages, dict) and isinstance(messages.get("messages"), list):
        messages = messages["messages"]  # the user pasted a whole request body
    if not isinstance(messages, list) or not messages:
        raise BadMessages("messages are a list with at least one of them")
    if len(messages) > MOST_MESSAGES:
        raise BadMessages(f"these are {len(messages)} messages, {MOST_MESSAGES} are the most")
    for number, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or not 1 <= len(role) <= MOST_ROLE:
            raise BadMessages(f"message {number + 1} has no role, as system, user or assistant")
    if _is_deeper(messages, MOST_DEPTH):
        raise BadMessages(f"this is nested more than {MOST_DEPTH} levels deep")
    return messages


def _no_constant(name: str) -> Any:
    raise BadMessages(f"{name} is no number of JSON")


def _is_deeper(document: Any, most: int) -> bool:
    level: Sequence[Any] = [document]
    for _ in range(most):
        level = [child for node in level for child in _inside(node)]
    return bool(level)


def _inside(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


class LintForm(forms.Form):
    prompts = forms.CharField(
        label="Prompts, in the order in which they are sent",
        strip=False,
        max_length=MOST_LINTED,
        widget=forms.Textarea(attrs={"rows": 14, "spellcheck": "false"}),
        help_text="Texts with a line of --- between them; or JSON: a body of the OpenAI API, a list of messages, a "
        "list of bodies, or one body on each line.",
    )
