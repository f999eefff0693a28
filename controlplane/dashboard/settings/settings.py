"""The first settings page, with the fleet's policy at a glance, and the tabs to the others."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from controlplane.analytics.prices import price_list
from controlplane.dashboard.frame.navigation import Link
from controlplane.dashboard.frame.pages import operator_of, page
from controlplane.dashboard.settings.rows import (
    policy_facts,
    policy_headline,
    prices_headline,
    tokens_headline,
)
from tenants.access import OPERATE_ADMIN_READ, operator_tokens, permit
from tenants.levels import FLEET, level_of
from tenants.policy import effective_values

TABS = (
    ("Fleet", "settings"),
    ("Prices", "settings-prices"),
    ("Operators’ tokens", "settings-tokens"),
    ("Agent groups", "settings-groups"),
    ("Quality", "settings-quality"),
)
REFUSED = 422


def shown(request: HttpRequest, template: str, context: Mapping[str, Any], *, status: int = 200) -> HttpResponse:
    """Render a settings page with its tabs."""
    links = [Link(label, reverse(view), request.path == reverse(view)) for label, view in TABS]
    path = f"dashboard/settings/{template}.html"
    return render(request, path, {"tabs": links, **context}, status=status)


@page()
def settings(request: HttpRequest) -> HttpResponse:
    permit(operator_of(request), OPERATE_ADMIN_READ)
    level = level_of(FLEET)
    models = level.policy.get("models", {})
    context = {
        "headline": policy_headline(level.revision, level.policy),
        "facts": policy_facts(effective_values([level.policy]), level.policy),
        "models": sorted(models),
        "prices": prices_headline(price_list()),
        "tokens": tokens_headline(operator_tokens().count()),
    }
    return shown(request, "settings", context)
