"""The sign-in page, also returned for a form whose session has ended."""

from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.dashboard.accounts.forms import SignInForm
from controlplane.dashboard.frame.requests import next_page


def sign_in_page(
    request: HttpRequest, form: SignInForm, status: int, *, next_address: str = "", has_refused_form: bool = False
) -> HttpResponse:
    context = {"form": form, "next": next_address or next_page(request), "has_refused_form": has_refused_form}
    return render(request, "dashboard/accounts/sign_in.html", context, status=status)


def form_refused(request: HttpRequest) -> HttpResponse:
    """Return the sign-in page, which says that nothing was done and leads back to the page with the form.

    Browsers with JavaScript rarely get here: static/luminet/session.js checks the session before it sends a form.
    """
    return sign_in_page(request, SignInForm(), 403, next_address=_form_address(request), has_refused_form=True)


def _form_address(request: HttpRequest) -> str:
    """Return path and query of the page with the form. The redirect after sign-in accepts only this site."""
    try:
        page = urlsplit(request.headers.get("Referer", ""))
    except ValueError:
        return ""
    return f"{page.path}?{page.query}".removesuffix("?")
