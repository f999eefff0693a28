"""Additions to pages by other apps: the dashboard defines the places and imports none of those apps."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from django.apps import apps
from django.http import HttpRequest

Place = Literal["home", "overview", "settings", "sign in"]
Addition = Callable[[HttpRequest], tuple[str, dict[str, Any]]]  # a template and its context


def additions_at(slot: Place, request: HttpRequest) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what each app with `page_additions` adds at `slot`."""
    for app in apps.get_app_configs():
        additions: Mapping[Place, Addition] = getattr(app, "page_additions", {})
        if slot in additions:
            yield additions[slot](request)
