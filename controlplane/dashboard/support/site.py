"""Django's admin as Luminet's support site, with the same sign-in and its limits."""

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.dashboard.frame.problems import not_found
from controlplane.dashboard.frame.requests import origin_of, user_of
from tenants.access import actor_for_operator
from tenants.actor import Actor


class SupportSite(AdminSite):
    site_header = site_title = "Luminet support"
    index_title = "Support work"

    def actor_of(self, request: HttpRequest) -> Actor:
        """Return the actor that the audit trail names for actions on this site."""
        return actor_for_operator(user_of(request), **origin_of(request))

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Redirect to sign-in: Django sends everyone here who may not see the admin."""
        if request.user.is_authenticated and not self.has_permission(request):
            return not_found(request)
        return redirect_to_login(request.GET.get("next", reverse("admin:index")), reverse("sign-in"))

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        return redirect("password")
