"""Forms that could not be taken, for no fault of whoever typed them: nothing is done, and nothing typed is lost.

A session that has ended leads to the sign-in page, which carries what was typed (keeping.py); whoever signs in as the
same person, or has done so in another tab meanwhile, is back on the form with everything filled in. Sending it is
theirs to do.
"""

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.middleware.csrf import get_token
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import Resolver404, resolve

from controlplane.dashboard.accounts.forms import SignInForm
from controlplane.dashboard.accounts.keeping import (
    KEPT,
    NEVER,
    Kept,
    TooLong,
    is_from_here,
    kept_of,
    readable,
    sealed,
    unsealed,
)
from controlplane.dashboard.accounts.refilling import Refilled, anchored, noted, placed, refilled
from controlplane.dashboard.frame.requests import next_page, user_of

MOST_REDIRECTS = 2
ENDED = "Your session had ended when you sent this."
RENEWED = "You have signed in again since this page was opened."
TOO_LONG = "It was too long to be kept here: go back in your browser to copy it before you go on."


def signed_out(request: HttpRequest) -> HttpResponse | None:
    """The sign-in page that keeps what was typed; None where there is nothing to keep."""
    try:
        kept = kept_of(request)
    except TooLong:
        return sign_in_page(request, SignInForm(), 403, after=request.path, why=f"{ENDED} {TOO_LONG}")
    if kept is None:
        return None
    told = sealed(kept, now=time.time())
    return sign_in_page(request, SignInForm(), 403, after=kept.page or kept.sent_to, kept=told)


def sign_in_page(
    request: HttpRequest, form: SignInForm, status: int, *, after: str = "", kept: str = "", why: str = ""
) -> HttpResponse:
    context = {
        "form": form,
        "next": after or next_page(request),
        "kept": kept or request.POST.get(KEPT, ""),
        "why": why,
    }
    return render(request, "dashboard/accounts/sign_in.html", context, status=status)


def back_on_the_form(request: HttpRequest) -> HttpResponse | None:
    """For who has just signed in, or was signed in already: the form, if what they carry is theirs."""
    told = request.POST.get(KEPT, "")
    kept = unsealed(told, reader=user_of(request).pk, now=time.time()) if told and is_from_here(request) else None
    return None if kept is None else resumed(request, kept, why=ENDED, status=200)


def token_renewed(request: HttpRequest) -> HttpResponse | None:
    """A form of a page that is older than the session: by the same person it is shown again. None for all others.

    Raises TooLong."""
    name = request.resolver_match.url_name if request.resolver_match else None
    if not is_from_here(request):
        return None
    if name == "sign-in":
        if request.user.is_authenticated:
            return back_on_the_form(request)
        return sign_in_page(request, SignInForm(initial={"email": request.POST.get("email", "")}), 403)
    if not request.user.is_authenticated:
        return signed_out(request)
    kept = kept_of(request)
    if kept is None or kept.author != user_of(request).pk:
        return None
    return resumed(request, kept, why=RENEWED, status=403)


def typed_by_them(request: HttpRequest) -> Sequence[tuple[str, str]]:
    """What somebody sent who may not do it: theirs to read and copy."""
    user = getattr(request, "user", None)  # none yet, where it is refused early
    if request.method != "POST" or user is None or not user.is_authenticated:
        return ()
    try:
        kept = kept_of(request)
    except TooLong:
        return ()
    return () if kept is None or kept.author != user.pk else readable(kept)


def resumed(request: HttpRequest, kept: Kept, *, why: str, status: int) -> HttpResponse:
    """On the page it stood on; where that is gone, on one of its own."""
    for address in dict.fromkeys((kept.page, kept.sent_to)):
        shown = _shown(request, address, kept) if address else None
        found = _with_typed(shown, kept) if shown is not None else None
        if found is None:
            continue
        left = readable(replace(kept, typed=found.unplaced))
        note = render_to_string("dashboard/accounts/_kept.html", {"why": why, "anchor": found.anchor, "left": left})
        return HttpResponse(noted(found.html, note), status=status)
    context = {"why": why, "sent_to": kept.sent_to, "fields": kept.typed.items(), "typed": readable(kept)}
    return render(request, "dashboard/accounts/kept.html", context, status=status)


def kept_shown(request: HttpRequest) -> dict[str, list[str]] | None:
    """For a view whose form has more than a page begins with: what was typed, which it then shows by itself."""
    kept: Kept | None = getattr(request, "kept", None)
    if kept is None:
        return None
    request.kept_shown = True  # type: ignore[attr-defined]
    return kept.typed


@dataclass(frozen=True, slots=True)
class Shown:
    """A page as they see it now, wherever its address led, and whether its view has filled it in itself."""

    html: str
    is_filled: bool


def _with_typed(shown: Shown, kept: Kept) -> Refilled | None:
    """None where it has no place for it."""
    if shown.is_filled:
        found = anchored(shown.html, sent_to=kept.sent_to, typed=kept.typed)
        return found or Refilled(shown.html, "", {})
    return refilled(shown.html, sent_to=kept.sent_to, typed=kept.typed)


def _shown(request: HttpRequest, address: str, kept: Kept) -> Shown | None:
    for _ in range(MOST_REDIRECTS + 1):
        asked = _asked(request, address, kept)
        match = asked.resolver_match if asked else None
        if asked is None or match is None:
            return None
        try:
            answer = match.func(asked, *match.args, **match.kwargs)
        except Http404:
            return None
        if answer.status_code in (301, 302):
            address = answer["Location"]
            continue
        if answer.status_code != 200 or not answer["Content-Type"].startswith("text/html"):
            return None
        return Shown(placed(answer.content.decode(), address), hasattr(asked, "kept_shown"))
    return None


def _asked(request: HttpRequest, address: str, kept: Kept) -> HttpRequest | None:
    """The request that shows that page; None where it is none of the dashboard's."""
    parts = urlsplit(address)
    try:
        match = resolve(parts.path)
    except Resolver404:
        return None
    if not match.func.__module__.startswith("controlplane.dashboard.") or match.url_name in NEVER:
        return None
    get_token(request)  # the cookie of the token is set with the answer to this request
    asked = copy.copy(request)
    asked.method, asked.path, asked.path_info, asked.resolver_match = "GET", parts.path, parts.path, match
    meta = {"REQUEST_METHOD": "GET", "PATH_INFO": parts.path, "QUERY_STRING": parts.query}
    asked.META = {**request.META, **meta}
    vars(asked)["GET"] = QueryDict(parts.query)
    asked._post, asked._files = QueryDict(), {}  # type: ignore[attr-defined]
    asked.kept = kept if parts.path == urlsplit(kept.sent_to).path else None  # type: ignore[attr-defined]
    return asked
