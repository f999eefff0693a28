"""The cookie by which an account knows a browser: set after each proof of who they are, read where they sign in."""

from typing import TypeVar

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from tenants.known_devices import LASTS, device_issue, device_name
from tenants.models import User

Answer = TypeVar("Answer", bound=HttpResponse)


def browser_device(request: HttpRequest, email: str) -> str:
    """Return what this browser keeps for that account."""
    return request.COOKIES.get(_cookie(email), "")


def browser_remember(request: HttpRequest, answer: Answer, user: User) -> Answer:
    """Have the browser keep a new word for this account; the one before is replaced."""
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
    """One for each account, so that two in one browser do not push each other out."""
    return f"luminet_device_{device_name(email)}"
