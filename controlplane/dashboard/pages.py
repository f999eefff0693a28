"""What every page asks first: who is signed in, and for whom they act. Domain errors become pages here, once.

A view decorated with `page` is given an actor where it asks for one, and lets the domain's errors out: "not there" and
"not yours" become the same page, "may not" says what is missing. A part that HTMX refreshes is decorated with `part`.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from controlplane.dashboard.problems import not_found, problem
from controlplane.dashboard.requests import origin_of, user_of
from tenants.access import actor_for_member, actor_for_operator, memberships_of
from tenants.actor import Actor
from tenants.errors import NotFound, NotPermitted, OrganisationSuspended

View = Callable[..., HttpResponse]
READS = ("GET", "HEAD")
FORMS = (*READS, "POST")


def page(*, methods: Sequence[str] = READS) -> Callable[[View], View]:
    """For people who are signed in: others sign in first, and come back."""

    def decorate(view: View) -> View:
        return require_http_methods(list(methods))(login_required(_translated(view)))

    return decorate


def part(view: View, *, methods: Sequence[str] = READS) -> View:
    """A piece of a page, for HTMX. When the session has ended the page reloads as a whole, or sign-in would appear
    inside a panel."""
    translated = _translated(view)

    @require_http_methods(list(methods))
    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return HttpResponse(status=204, headers={"HX-Refresh": "true"})
        return translated(request, *args, **kwargs)

    return shown


def operator_of(request: HttpRequest) -> Actor:
    """Raises NotFound for everybody else: what only operators have is not there for others."""
    user = user_of(request)
    if not user.is_operator:
        raise NotFound("page")
    return actor_for_operator(user, **origin_of(request))


def actor_within(request: HttpRequest, org: str) -> Actor:
    """For whom somebody acts in that organisation. Raises NotFound where they have no business there."""
    user = user_of(request)
    if user.is_operator:
        return actor_for_operator(user, **origin_of(request))
    member = memberships_of(user).filter(organisation__slug=org).first()
    if member is None:
        raise NotFound("organisation")
    return actor_for_member(member, **origin_of(request))


def actors_of(request: HttpRequest) -> list[Actor]:
    """Everybody that somebody may speak for: an operator for the fleet, a member for each of their organisations."""
    user, origin = user_of(request), origin_of(request)
    if user.is_operator:
        return [actor_for_operator(user, **origin)]
    return [actor_for_member(one, **origin) for one in memberships_of(user)]


def _translated(view: View) -> View:
    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except NotFound:
            return not_found(request)
        except OrganisationSuspended as error:
            return problem(request, 403, "This organisation is suspended", str(error))
        except NotPermitted as error:
            return problem(request, 403, "You may not do this", str(error))

    return shown
