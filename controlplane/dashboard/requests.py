"""What pages ask of a request: who is signed in, where from, and where to afterwards."""

import ipaddress
from typing import cast

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from tenants.models import User


def user_of(request: HttpRequest) -> User:
    """Behind `login_required`, where there is one."""
    return cast(User, request.user)


def address_of(request: HttpRequest) -> str:
    """Whom attempts are counted for. An IPv6 network is one: a single host may own all addresses of it."""
    try:
        address = ipaddress.ip_address(str(request.META.get("REMOTE_ADDR", "")))
    except ValueError:
        return "::"
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False).network_address)
    return str(address)


def next_page(request: HttpRequest, otherwise: str = "home") -> str:
    """Where to go afterwards: only ever a page of ours."""
    target = request.POST.get("next") or request.GET.get("next") or ""
    if target.startswith("/") and url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    ):
        return target
    return reverse(otherwise)
