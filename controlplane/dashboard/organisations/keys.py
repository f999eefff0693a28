"""An organisation's API keys: create, show once, revoke."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache

from controlplane.analytics.by_key import keys_asked
from controlplane.dashboard.frame.forms import ConfirmForm
from controlplane.dashboard.frame.pages import FORMS, actor_within, page
from controlplane.dashboard.frame.paging import asked, pager
from controlplane.dashboard.frame.words import made_before
from controlplane.dashboard.organisations.common import REFUSED, Refusal, shown
from controlplane.dashboard.organisations.forms import FEW, KeyForm
from controlplane.dashboard.organisations.key_rows import KeyRow, headline, snippet
from controlplane.fleet.selectors import gateway_address
from tenants.access import MANAGE, MANAGE_READ, key_for, namespace_slugs, namespaces_visible, organisation_for
from tenants.actor import Actor
from tenants.errors import FieldProblem, IdempotencyKeyReused, InvalidFields, NotFound
from tenants.listing import keys_found
from tenants.models import ApiKey, Namespace, Organisation
from tenants.services.idempotency import KeptAnswer, once
from tenants.services.keys import key_create, key_revoke


@never_cache
@page(methods=FORMS)
def keys(request: HttpRequest, org: str) -> HttpResponse:
    actor = actor_within(request, org)
    if request.method != "POST":
        return _page(request, actor, organisation_for(actor, org, MANAGE_READ))
    found = organisation_for(actor, org, MANAGE)
    return _revoke(request, actor, found) if request.POST.get("do") == "revoke" else _create(request, actor, found)


def _create(request: HttpRequest, actor: Actor, found: Organisation) -> HttpResponse:
    form = KeyForm(request.POST, slugs=_slugs(actor, found))
    if form.is_valid():
        try:
            made = _made(actor, found, form)
        except Refusal as error:
            form.refuse(error.problems)
        except IdempotencyKeyReused:
            form.add_error(None, "A key was made with this form already. Send it again to make another one.")
        else:
            if not isinstance(made, ApiKey):
                return _page(request, actor, found, made=made, status=201)
            form.add_error(None, made_before(f"The key {made.name} ({made.prefix}…)"))
    return _page(request, actor, found, form=form, status=REFUSED)


def _made(actor: Actor, found: Organisation, form: KeyForm) -> tuple[ApiKey, str] | ApiKey:
    """Create a key and return it with its secret, or alone for a form sent twice, as by a reload."""
    told = form.cleaned_data

    def perform() -> tuple[tuple[ApiKey, str], KeptAnswer]:
        chosen = _namespaces(actor, found, told["namespaces"]) if told["namespaces"] else None
        key, secret = key_create(
            actor=actor,
            organisation=found,
            name=told["name"],
            scopes=told["scopes"],
            namespaces=chosen,
            expires_at=told["ends"],
        )
        return (key, secret.secret), KeptAnswer(201, json.dumps({"key": str(key.pk)}))

    said = json.dumps([found.pk, told["name"], told["scopes"], told["namespaces"], str(told["ends"])])
    fingerprint = sha256(said.encode()).digest()
    answer = once(actor=actor, key=f"page {told['once']}", fingerprint=fingerprint, now=timezone.now(), perform=perform)
    return key_for(found, UUID(json.loads(answer.body)["key"])) if isinstance(answer, KeptAnswer) else answer


def _revoke(request: HttpRequest, actor: Actor, found: Organisation) -> HttpResponse:
    key = _chosen(found, request.POST.get("key", ""))
    form = _confirming(key, request.POST)
    if not form.is_valid():
        return _page(request, actor, found, ending=(key, form), status=REFUSED)
    key_revoke(actor=actor, key=key)
    messages.success(request, f"The key {key.name} ({key.prefix}…) is revoked. Gateways refuse it within moments.")
    return redirect("keys", found.slug)


def _page(
    request: HttpRequest,
    actor: Actor,
    found: Organisation,
    *,
    form: KeyForm | None = None,
    made: tuple[ApiKey, str] | None = None,
    ending: tuple[ApiKey, ConfirmForm] | None = None,
    status: int = 200,
) -> HttpResponse:
    of, now = asked(request.GET.dict()), timezone.now()
    pages = pager(of, keys_found(found, of.find))
    page_of = list(pages)
    slugs = namespace_slugs({one for key in page_of for one in key.namespace_ids or ()})
    if ending is None and "revoke" in request.GET:
        key = _chosen(found, request.GET["revoke"])
        ending = (key, _confirming(key))
    asking = keys_asked(found.pk, {key.pk for key in (*page_of, *([ending[0]] if ending else []))})
    context: dict[str, Any] = {
        "headline": headline(pages.total, of.find),
        "of": of,
        "pager": pages,
        "rows": [KeyRow(key, slugs, asking[key.pk], found.is_suspended, now) for key in page_of],
        "form": form or KeyForm(slugs=_slugs(actor, found)),
        "once": uuid4(),
    }
    if made is not None:
        context |= {"made": made[0], "secret": made[1], "snippet": _snippet(request, *made)}
    if ending is not None:
        key = ending[0]
        context["ending"] = KeyRow(key, slugs, asking[key.pk], found.is_suspended, now)
        context["ending_form"] = ending[1]
    return shown(request, "keys", actor, found, context, status=status)


def _confirming(key: ApiKey, sent: Any = None) -> ConfirmForm:
    return ConfirmForm(sent, name=key.name, what="the key’s name", prefix="end")


def _chosen(found: Organisation, text: str) -> ApiKey:
    try:
        return key_for(found, UUID(text))
    except ValueError:
        raise NotFound("key") from None


def _slugs(actor: Actor, found: Organisation) -> list[str]:
    slugs = namespaces_visible(actor, found).order_by("slug").values_list("slug", flat=True)
    return list(slugs[: FEW + 1])


def _namespaces(actor: Actor, found: Organisation, slugs: Sequence[str]) -> list[Namespace]:
    """Return the namespaces, or raise InvalidFields that names the missing ones."""
    chosen = list(namespaces_visible(actor, found).filter(slug__in=slugs))
    known = {one.slug for one in chosen}
    if missing := [slug for slug in slugs if slug not in known]:
        raise InvalidFields(FieldProblem("namespaces", f"there is no namespace {slug[:80]}") for slug in missing)
    return chosen


def _snippet(request: HttpRequest, key: ApiKey, secret: str) -> str:
    return snippet(key, secret, gateway=gateway_address() or "", web=request.build_absolute_uri("/").rstrip("/"))
