"""What pages ask of a request: who is signed in, where from, and where to afterwards."""

from typing import cast

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from controlplane.common.request_id import request_id_current
from tenants.addresses import address_parse
from tenants.models import User

STOP_ASKING = 286  # HTMX's own: swap this, and poll no more


def user_of(request: HttpRequest) -> User:
    """Behind `login_required`, where there is one."""
    return cast(User, request.user)


def address_of(request: HttpRequest) -> str:
    return address_parse(request.META.get("REMOTE_ADDR"))


def origin_of(request: HttpRequest) -> dict[str, str]:
    """What the audit trail keeps beside who did it, as services take it."""
    return {"address": address_of(request), "request_id": request_id_current() or ""}


def next_page(request: HttpRequest, otherwise: str = "home") -> str:
    """Where to go afterwards: only ever a page of ours."""
    target = request.POST.get("next") or request.GET.get("next") or ""
    if target.startswith("/") and url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    ):
        return target
    return reverse(otherwise)
