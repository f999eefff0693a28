"""The cookie by which an account recognises a browser: set after each authentication, and read at sign-in."""

from typing import TypeVar

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from tenants.known_devices import LASTS, device_issue, device_name
from tenants.models import User

Answer = TypeVar("Answer", bound=HttpResponse)


def browser_device(request: HttpRequest, email: str) -> str:
    """Return what this browser stores for that account."""
    return request.COOKIES.get(_cookie(email), "")


def browser_remember(request: HttpRequest, answer: Answer, user: User) -> Answer:
    """Store a new secret for this account in the browser; it replaces the previous one."""
    answer.set_cookie(
        _cookie(user.email),
        device_issue(user),
        max_age=LASTS,
        path=reverse("sign-in"),
        secure=request.is_secure(),
        httponly=True,
        samesite="Strict",
    )
    return answer


def _cookie(email: str) -> str:
    """Return a cookie name for each account, so that two accounts can share one browser."""
    return f"luminet_device_{device_name(email)}"
