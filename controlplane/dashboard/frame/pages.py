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
    """For people who are signed in: others sign in first, and come back."""

    def decorate(view: View) -> View:
        shown = login_required(_translated(view))

        @require_http_methods(list(methods))
        @wraps(view)
        def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if request.method == "POST" and not request.user.is_authenticated:
                return form_refused(request)
            return shown(request, *args, **kwargs)

        return answered

    return decorate


def part(view: View, *, methods: Sequence[str] = READS) -> View:
    """A piece of a page, for HTMX. Where somebody's session or access has ended it says so in its place, and the page
    around it stays: there may be something typed on it that was not sent yet."""
    translated = _translated(view)

    @require_http_methods(list(methods))
    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return part_ended(request, SIGNED_OUT, signs_in=True)
        answer = translated(request, *args, **kwargs)
        is_refused = answer.status_code in REFUSED and request.headers.get("HX-Request")
        return part_ended(request, NOT_ANY_MORE) if is_refused else answer

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
            return may_not(request, 403, "This organisation is suspended", str(error))
        except NotPermitted as error:
            return may_not(request, 403, "You may not do this", str(error))

    return shown
