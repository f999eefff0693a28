"""An organisation's members: invite them, set roles, remove them, and create links, each shown once."""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache

from controlplane.dashboard.frame.deeds import problems_words
from controlplane.dashboard.frame.forms import ConfirmForm
from controlplane.dashboard.frame.pages import FORMS, actor_within, page
from controlplane.dashboard.frame.paging import asked, pager
from controlplane.dashboard.organisations.common import REFUSED, Refusal, shown
from controlplane.dashboard.organisations.forms import InviteForm, RoleForm
from controlplane.dashboard.organisations.member_words import headline, is_reader, link_words, may_words
from tenants.access import MANAGE, MANAGE_READ, member_for, organisation_for
from tenants.actor import Actor, ActorKind
from tenants.errors import NotFound
from tenants.listing import members_found
from tenants.models import Member, Organisation
from tenants.services.members import NewLink, member_invite, member_link, member_remove, member_update


@never_cache
@page(methods=FORMS)
def members(request: HttpRequest, org: str) -> HttpResponse:
    actor = actor_within(request, org)
    if request.method != "POST":
        return _page(request, actor, organisation_for(actor, org, MANAGE_READ))
    found = organisation_for(actor, org, MANAGE)
    what = request.POST.get("do", "")
    if what == "invite":
        return _invite(request, actor, found)
    member = _chosen(found, request.POST.get("member", ""))
    match what:
        case "role":
            return _role(request, actor, member)
        case "link":
            link = member_link(actor=actor, member=member)
            return _page(request, actor, found, link=_link(link, member.email), status=201)
        case "remove":
            return _remove(request, actor, member)
    raise NotFound("page")


def _invite(request: HttpRequest, actor: Actor, found: Organisation) -> HttpResponse:
    form = InviteForm(request.POST)
    if form.is_valid():
        try:
            member, link = member_invite(actor=actor, organisation=found, **form.cleaned_data)
        except Refusal as error:
            form.refuse(error.problems)
        else:
            return _page(request, actor, found, link=_link(link, member.email), status=201)
    return _page(request, actor, found, form=form, status=REFUSED)


def _role(request: HttpRequest, actor: Actor, member: Member) -> HttpResponse:
    form, found = RoleForm(request.POST, prefix="role"), member.organisation
    if form.is_valid():
        try:
            changed = member_update(actor=actor, member=member, role=form.cleaned_data["role"])
        except Refusal as error:
            form.refuse(error.problems)
        else:
            messages.success(request, f"{changed.email} is {changed.role} now.")
            return _afterwards(actor, changed, found, is_still_admin=changed.role == Member.Role.ADMIN)
    return _page(request, actor, found, chosen=member, role_form=form, status=REFUSED)


def _remove(request: HttpRequest, actor: Actor, member: Member) -> HttpResponse:
    form, found = _confirming(member, request.POST), member.organisation
    if form.is_valid():
        try:
            member_remove(actor=actor, member=member)
        except Refusal as error:
            form.add_error(None, problems_words(error.problems))
        else:
            messages.success(request, f"{member.email} sees nothing of {found.name} any more.")
            return redirect("home") if _is_self(actor, member) else redirect("members", found.slug)
    return _page(request, actor, found, chosen=member, end_form=form, status=REFUSED)


def _afterwards(actor: Actor, member: Member, found: Organisation, *, is_still_admin: bool) -> HttpResponse:
    """Redirect after a change of role; a user who is no longer an admin may not open this page."""
    is_out = _is_self(actor, member) and not is_still_admin
    return redirect("organisation" if is_out else "members", found.slug)


def _page(
    request: HttpRequest,
    actor: Actor,
    found: Organisation,
    *,
    form: InviteForm | None = None,
    link: dict[str, Any] | None = None,
    chosen: Member | None = None,
    role_form: RoleForm | None = None,
    end_form: ConfirmForm | None = None,
    status: int = 200,
) -> HttpResponse:
    of = asked(request.GET.dict())
    rows = members_found(found, of.find)
    pages = pager(of, rows)
    reader = actor.id if actor.kind is ActorKind.MEMBER else ""
    if chosen is None and "member" in request.GET:
        chosen = _chosen(found, request.GET["member"])
    context: dict[str, Any] = {
        "headline": headline(pages.total, rows.filter(joined_at=None).count(), of.find),
        "of": of,
        "pager": pages,
        "rows": [(one, may_words(one), is_reader(one, reader)) for one in pages],
        "form": form or InviteForm(),
        "link": link,
    }
    if chosen is not None:
        context |= {
            "chosen": chosen,
            "chosen_may": may_words(chosen),
            "is_reader": is_reader(chosen, reader),
            "may_link": actor.is_operator or not chosen.has_joined,
            "role_form": role_form or RoleForm(initial={"role": chosen.role}, prefix="role"),
            "end_form": end_form or _confirming(chosen),
        }
    return shown(request, "members", actor, found, context, status=status)


def _confirming(member: Member, sent: Any = None) -> ConfirmForm:
    return ConfirmForm(sent, name=member.email, what="their address", prefix="end")


def _chosen(found: Organisation, text: str) -> Member:
    try:
        return member_for(found, UUID(text))
    except ValueError:
        raise NotFound("member") from None


def _is_self(actor: Actor, member: Member) -> bool:
    return actor.kind is ActorKind.MEMBER and actor.id == str(member.user_id)


def _link(link: NewLink, email: str) -> dict[str, Any]:
    """Return the context of a new link, shown only once."""
    title, what = link_words(link.purpose, email)
    url = f"{settings.ENVIRONMENT.base_url}{link.path}"
    return {"title": title, "url": url, "expires_at": link.expires_at, "what": what}
