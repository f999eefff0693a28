"""Decorators and helpers for views: sign-in, the acting user, and domain errors turned into pages in one place.

A view decorated with `page` lets domain errors propagate. A missing object and another tenant's give the same page; a
lacking permission gives a page that names it. Decorate a part that HTMX refreshes with `part`.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from controlplane.dashboard.accounts.sign_in import form_refused
from controlplane.dashboard.frame.problems import SIGNED_OUT, may_not, not_found, part_ended
from controlplane.dashboard.frame.requests import origin_of, user_of
from tenants.access import actor_for_member, actor_for_operator, memberships_of
from tenants.actor import Actor
from tenants.errors import NotFound, NotPermitted, OrganisationSuspended

View = Callable[..., HttpResponse]
READS = ("GET", "HEAD")
FORMS = (*READS, "POST")
REFUSED = (403, 404)
NOT_ANY_MORE = "This is not there, or not yours to see any more."


def page(*, methods: Sequence[str] = READS) -> Callable[[View], View]:
    """Decorate a view for signed-in users; others sign in first and return."""

    def decorate(view: View) -> View:
        protected = login_required(_translated(view))

        @require_http_methods(list(methods))
        @wraps(view)
        def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if request.method == "POST" and not request.user.is_authenticated:
                return form_refused(request)
            return protected(request, *args, **kwargs)

        return answered

    return decorate


def part(view: View, *, methods: Sequence[str] = READS) -> View:
    """Decorate a view that renders part of a page for HTMX.

    If session or access has ended, only this part says so: the rest of the page may contain unsent input.
    """
    translated = _translated(view)

    @require_http_methods(list(methods))
    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return part_ended(request, SIGNED_OUT, signs_in=True)
        response = translated(request, *args, **kwargs)
        is_refused = response.status_code in REFUSED and request.headers.get("HX-Request")
        return part_ended(request, NOT_ANY_MORE) if is_refused else response

    return shown


def operator_of(request: HttpRequest) -> Actor:
    """Return the operator's actor. Raise NotFound for anyone else: operators' pages do not exist for them."""
    user = user_of(request)
    if not user.is_operator:
        raise NotFound("page")
    return actor_for_operator(user, **origin_of(request))


def actor_within(request: HttpRequest, org: str) -> Actor:
    """Return the user's actor in the organisation, or raise NotFound if they are neither operator nor member."""
    user = user_of(request)
    if user.is_operator:
        return actor_for_operator(user, **origin_of(request))
    member = memberships_of(user).filter(organisation__slug=org).first()
    if member is None:
        raise NotFound("organisation")
    return actor_for_member(member, **origin_of(request))


def actors_of(request: HttpRequest) -> list[Actor]:
    """Return the user's actors: one for the fleet's operator, else one for each membership."""
    user, origin = user_of(request), origin_of(request)
    if user.is_operator:
        return [actor_for_operator(user, **origin)]
    return [actor_for_member(membership, **origin) for membership in memberships_of(user)]


def _translated(view: View) -> View:
    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except NotFound:
            return not_found(request)
        except OrganisationSuspended as error:
            return may_not(request, 403, "This organisation is suspended", str(error))
        except NotPermitted as error:
            return may_not(request, 403, "You may not do this", str(error))

    return shown
