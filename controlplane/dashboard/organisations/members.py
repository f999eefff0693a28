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
    organisation = organisation_for(actor, org, MANAGE)
    action = request.POST.get("do", "")
    if action == "invite":
        return _invite(request, actor, organisation)
    member = _chosen(organisation, request.POST.get("member", ""))
    match action:
        case "role":
            return _role(request, actor, member)
        case "link":
            link = member_link(actor=actor, member=member)
            return _page(request, actor, organisation, link=_link(link, member.email), status=201)
        case "remove":
            return _remove(request, actor, member)
    raise NotFound("page")


def _invite(request: HttpRequest, actor: Actor, organisation: Organisation) -> HttpResponse:
    form = InviteForm(request.POST)
    if form.is_valid():
        try:
            member, link = member_invite(actor=actor, organisation=organisation, **form.cleaned_data)
        except Refusal as error:
            form.refuse(error.problems)
        else:
            return _page(request, actor, organisation, link=_link(link, member.email), status=201)
    return _page(request, actor, organisation, form=form, status=REFUSED)


def _role(request: HttpRequest, actor: Actor, member: Member) -> HttpResponse:
    form, organisation = RoleForm(request.POST, prefix="role"), member.organisation
    if form.is_valid():
        try:
            changed = member_update(actor=actor, member=member, role=form.cleaned_data["role"])
        except Refusal as error:
            form.refuse(error.problems)
        else:
            messages.success(request, f"{changed.email} is {changed.role} now.")
            return _afterwards(actor, changed, organisation, is_still_admin=changed.role == Member.Role.ADMIN)
    return _page(request, actor, organisation, chosen=member, role_form=form, status=REFUSED)


def _remove(request: HttpRequest, actor: Actor, member: Member) -> HttpResponse:
    form, organisation = _confirming(member, request.POST), member.organisation
    if form.is_valid():
        try:
            member_remove(actor=actor, member=member)
        except Refusal as error:
            form.add_error(None, problems_words(error.problems))
        else:
            messages.success(request, f"{member.email} sees nothing of {organisation.name} any more.")
            return redirect("home") if _is_self(actor, member) else redirect("members", organisation.slug)
    return _page(request, actor, organisation, chosen=member, end_form=form, status=REFUSED)


def _afterwards(actor: Actor, member: Member, organisation: Organisation, *, is_still_admin: bool) -> HttpResponse:
    """Redirect after a change of role; a user who is no longer an admin may not open this page."""
    is_out = _is_self(actor, member) and not is_still_admin
    return redirect("organisation" if is_out else "members", organisation.slug)


def _page(
    request: HttpRequest,
    actor: Actor,
    organisation: Organisation,
    *,
    form: InviteForm | None = None,
    link: dict[str, Any] | None = None,
    chosen: Member | None = None,
    role_form: RoleForm | None = None,
    end_form: ConfirmForm | None = None,
    status: int = 200,
) -> HttpResponse:
    list_request = asked(request.GET.dict())
    rows = members_found(organisation, list_request.find)
    pages = pager(list_request, rows)
    reader = actor.id if actor.kind is ActorKind.MEMBER else ""
    if chosen is None and "member" in request.GET:
        chosen = _chosen(organisation, request.GET["member"])
    context: dict[str, Any] = {
        "headline": headline(pages.total, rows.filter(joined_at=None).count(), list_request.find),
        "of": list_request,
        "pager": pages,
        "rows": [(member, may_words(member), is_reader(member, reader)) for member in pages],
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
    return shown(request, "members", actor, organisation, context, status=status)


def _confirming(member: Member, submitted: Any = None) -> ConfirmForm:
    return ConfirmForm(submitted, name=member.email, what="their address", prefix="end")


def _chosen(organisation: Organisation, text: str) -> Member:
    try:
        return member_for(organisation, UUID(text))
    except ValueError:
        raise NotFound("member") from None


def _is_self(actor: Actor, member: Member) -> bool:
    return actor.kind is ActorKind.MEMBER and actor.id == str(member.user_id)


def _link(link: NewLink, email: str) -> dict[str, Any]:
    """Return the context of a new link, shown only once."""
    title, effect = link_words(link.purpose, email)
    url = f"{settings.ENVIRONMENT.base_url}{link.path}"
    return {"title": title, "url": url, "expires_at": link.expires_at, "what": effect}
