"""Helpers that read a request: the signed-in user, the address, and the next page."""

from typing import cast

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from controlplane.common.request_id import request_id_current
from tenants.addresses import address_parse
from tenants.models import User

STOP_ASKING = 286  # HTMX's status code: swap this response and stop polling


def user_of(request: HttpRequest) -> User:
    """Return the signed-in user. Call only behind `login_required`."""
    return cast(User, request.user)


def address_of(request: HttpRequest) -> str:
    return address_parse(request.META.get("REMOTE_ADDR"))


def origin_of(request: HttpRequest) -> dict[str, str]:
    """Return the address and id of the request for audit records, as services take them."""
    return {"address": address_of(request), "request_id": request_id_current() or ""}


def next_page(request: HttpRequest, otherwise: str = "home") -> str:
    """Return the page to go to next; only pages of this site are accepted."""
    target = request.POST.get("next") or request.GET.get("next") or ""
    if target.startswith("/") and url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    ):
        return target
    return reverse(otherwise)
