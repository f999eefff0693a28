"""The demo's Django app, installed only where `LUMINET_DEMO` is set. It has no tables."""

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.http import HttpRequest

from controlplane.settings.env import is_loopback


def _home(request: HttpRequest) -> tuple[str, dict[str, Any]]:
    from controlplane.demo.note import traffic_note

    is_operator = bool(request.user.is_authenticated and request.user.is_operator)
    note = traffic_note() if is_operator else None
    return "demo/_demo_traffic.html", {"demo": note, "is_operator": is_operator}


def _overview(request: HttpRequest) -> tuple[str, dict[str, Any]]:
    return "demo/_five_minutes_link.html", {}


def _settings(request: HttpRequest) -> tuple[str, dict[str, Any]]:
    from controlplane.demo.note import traffic_note

    return "demo/_settings.html", {"demo": traffic_note()}


def _sign_in(request: HttpRequest) -> tuple[str, dict[str, Any]]:
    return "demo/_sign_in.html", {"is_on_this_machine": is_loopback(settings.ALLOWED_HOSTS[0])}


class DemoConfig(AppConfig):
    name = "controlplane.demo"
    label = "demo"
    page_additions = {"home": _home, "overview": _overview, "settings": _settings, "sign in": _sign_in}
