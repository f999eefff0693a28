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
    organisation = organisation_for(actor, org, MANAGE)
    return (
        _revoke(request, actor, organisation)
        if request.POST.get("do") == "revoke"
        else _create(request, actor, organisation)
    )


def _create(request: HttpRequest, actor: Actor, organisation: Organisation) -> HttpResponse:
    form = KeyForm(request.POST, slugs=_slugs(actor, organisation))
    if form.is_valid():
        try:
            created = _made(actor, organisation, form)
        except Refusal as error:
            form.refuse(error.problems)
        except IdempotencyKeyReused:
            form.add_error(None, "A key was made with this form already. Send it again to make another one.")
        else:
            if not isinstance(created, ApiKey):
                return _page(request, actor, organisation, made=created, status=201)
            form.add_error(None, made_before(f"The key {created.name} ({created.prefix}…)"))
    return _page(request, actor, organisation, form=form, status=REFUSED)


def _made(actor: Actor, organisation: Organisation, form: KeyForm) -> tuple[ApiKey, str] | ApiKey:
    """Create a key and return it with its secret, or alone for a form sent twice, as by a reload."""
    cleaned = form.cleaned_data

    def perform() -> tuple[tuple[ApiKey, str], KeptAnswer]:
        namespaces = _namespaces(actor, organisation, cleaned["namespaces"]) if cleaned["namespaces"] else None
        key, secret = key_create(
            actor=actor,
            organisation=organisation,
            name=cleaned["name"],
            scopes=cleaned["scopes"],
            namespaces=namespaces,
            expires_at=cleaned["ends"],
        )
        return (key, secret.secret), KeptAnswer(201, json.dumps({"key": str(key.pk)}))

    payload = json.dumps(
        [organisation.pk, cleaned["name"], cleaned["scopes"], cleaned["namespaces"], str(cleaned["ends"])]
    )
    fingerprint = sha256(payload.encode()).digest()
    outcome = once(
        actor=actor, key=f"page {cleaned['once']}", fingerprint=fingerprint, now=timezone.now(), perform=perform
    )
    return key_for(organisation, UUID(json.loads(outcome.body)["key"])) if isinstance(outcome, KeptAnswer) else outcome


def _revoke(request: HttpRequest, actor: Actor, organisation: Organisation) -> HttpResponse:
    key = _chosen(organisation, request.POST.get("key", ""))
    form = _confirming(key, request.POST)
    if not form.is_valid():
        return _page(request, actor, organisation, ending=(key, form), status=REFUSED)
    key_revoke(actor=actor, key=key)
    messages.success(request, f"The key {key.name} ({key.prefix}…) is revoked. Gateways refuse it within moments.")
    return redirect("keys", organisation.slug)


def _page(
    request: HttpRequest,
    actor: Actor,
    organisation: Organisation,
    *,
    form: KeyForm | None = None,
    made: tuple[ApiKey, str] | None = None,
    ending: tuple[ApiKey, ConfirmForm] | None = None,
    status: int = 200,
) -> HttpResponse:
    list_request, now = asked(request.GET.dict()), timezone.now()
    pages = pager(list_request, keys_found(organisation, list_request.find))
    page_keys = list(pages)
    slugs = namespace_slugs({namespace_id for key in page_keys for namespace_id in key.namespace_ids or ()})
    if ending is None and "revoke" in request.GET:
        key = _chosen(organisation, request.GET["revoke"])
        ending = (key, _confirming(key))
    key_usage = keys_asked(organisation.pk, {key.pk for key in (*page_keys, *([ending[0]] if ending else []))})
    context: dict[str, Any] = {
        "headline": headline(pages.total, list_request.find),
        "of": list_request,
        "pager": pages,
        "rows": [KeyRow(key, slugs, key_usage[key.pk], organisation.is_suspended, now) for key in page_keys],
        "form": form or KeyForm(slugs=_slugs(actor, organisation)),
        "once": uuid4(),
    }
    if made is not None:
        context |= {"made": made[0], "secret": made[1], "snippet": _snippet(request, *made)}
    if ending is not None:
        key = ending[0]
        context["ending"] = KeyRow(key, slugs, key_usage[key.pk], organisation.is_suspended, now)
        context["ending_form"] = ending[1]
    return shown(request, "keys", actor, organisation, context, status=status)


def _confirming(key: ApiKey, submitted: Any = None) -> ConfirmForm:
    return ConfirmForm(submitted, name=key.name, what="the key’s name", prefix="end")


def _chosen(organisation: Organisation, text: str) -> ApiKey:
    try:
        return key_for(organisation, UUID(text))
    except ValueError:
        raise NotFound("key") from None


def _slugs(actor: Actor, organisation: Organisation) -> list[str]:
    slugs = namespaces_visible(actor, organisation).order_by("slug").values_list("slug", flat=True)
    return list(slugs[: FEW + 1])


def _namespaces(actor: Actor, organisation: Organisation, slugs: Sequence[str]) -> list[Namespace]:
    """Return the namespaces, or raise InvalidFields that names the missing ones."""
    namespaces = list(namespaces_visible(actor, organisation).filter(slug__in=slugs))
    known_slugs = {namespace.slug for namespace in namespaces}
    if missing := [slug for slug in slugs if slug not in known_slugs]:
        raise InvalidFields(FieldProblem("namespaces", f"there is no namespace {slug[:80]}") for slug in missing)
    return namespaces


def _snippet(request: HttpRequest, key: ApiKey, secret: str) -> str:
    return snippet(key, secret, gateway=gateway_address() or "", web=request.build_absolute_uri("/").rstrip("/"))
