"""Operators' tokens: create, show once, revoke."""

import json
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache

from controlplane.dashboard.frame.forms import ConfirmForm
from controlplane.dashboard.frame.pages import FORMS, operator_of, page
from controlplane.dashboard.frame.paging import page_asked, pager
from controlplane.dashboard.frame.requests import user_of
from controlplane.dashboard.frame.words import made_before
from controlplane.dashboard.settings.forms import TokenForm
from controlplane.dashboard.settings.rows import token_tag, tokens_headline
from controlplane.dashboard.settings.settings import REFUSED, shown
from tenants.access import OPERATE, OPERATE_ADMIN_READ, operator_token_for, operator_tokens, permit
from tenants.actor import Actor
from tenants.errors import IdempotencyKeyReused, InvalidFields, NotFound
from tenants.models import OperatorToken, User
from tenants.services.idempotency import KeptAnswer, once
from tenants.services.keys import operator_token_create, operator_token_revoke


@never_cache
@page(methods=FORMS)
def settings_tokens(request: HttpRequest) -> HttpResponse:
    actor = operator_of(request)
    permit(actor, OPERATE if request.method == "POST" else OPERATE_ADMIN_READ)
    if request.method != "POST":
        return _page(request)
    return _revoke(request, actor) if request.POST.get("do") == "revoke" else _create(request, actor)


def _create(request: HttpRequest, actor: Actor) -> HttpResponse:
    form = TokenForm(request.POST)
    if form.is_valid():
        try:
            secret = _made(actor, user_of(request), form)
        except InvalidFields as error:
            form.refuse(error.problems)
        except IdempotencyKeyReused:
            form.add_error(None, "A token was made with this form already. Send it again to make another one.")
        else:
            if secret is not None:
                return _page(request, secret=secret, made=form.cleaned_data["name"], status=201)
            form.add_error(None, made_before(f"The token {form.cleaned_data['name']}"))
    return _page(request, form=form, status=REFUSED)


def _made(actor: Actor, user: User, form: TokenForm) -> str | None:
    """Create a token and return its secret; None for a form sent twice, as by a reload."""
    cleaned = form.cleaned_data

    def perform() -> tuple[str, KeptAnswer]:
        _, secret = operator_token_create(
            actor=actor, user=user, name=cleaned["name"], scopes=cleaned["scopes"], expires_at=cleaned["ends"]
        )
        return secret.secret, KeptAnswer(201, "")

    payload = json.dumps([cleaned["name"], cleaned["scopes"], str(cleaned["ends"])])
    fingerprint = sha256(payload.encode()).digest()
    key = f"page {cleaned['once']}"
    outcome = once(actor=actor, key=key, fingerprint=fingerprint, now=timezone.now(), perform=perform)
    return None if isinstance(outcome, KeptAnswer) else outcome


def _revoke(request: HttpRequest, actor: Actor) -> HttpResponse:
    token = _chosen(request.POST.get("token", ""))
    form = ConfirmForm(request.POST, name=token.name, prefix="end")
    if not form.is_valid():
        return _page(request, ending=(token, form), status=REFUSED)
    operator_token_revoke(actor=actor, token=token)
    messages.success(request, f"The token {token.name} ({token.prefix}…) is revoked: it is refused from now on.")
    return redirect("settings-tokens")


def _page(
    request: HttpRequest,
    *,
    form: TokenForm | None = None,
    secret: str = "",
    made: str = "",
    ending: tuple[OperatorToken, ConfirmForm] | None = None,
    status: int = 200,
) -> HttpResponse:
    rows, now = operator_tokens().order_by("-created_at", "pk"), timezone.now()
    pages = pager(page_asked(request.GET), rows)
    if ending is None and "revoke" in request.GET:
        token = _chosen(request.GET["revoke"])
        ending = (token, ConfirmForm(name=token.name, prefix="end"))
    context: dict[str, Any] = {
        "headline": tokens_headline(pages.total),
        "rows": [(operator_token, token_tag(operator_token, now)) for operator_token in pages],
        "pager": pages,
        "form": form or TokenForm(),
        "once": uuid4(),
        "secret": secret,
        "made": made,
        "ending": ending and ending[0],
        "ending_form": ending and ending[1],
    }
    return shown(request, "tokens", context, status=status)


def _chosen(text: str) -> OperatorToken:
    try:
        return operator_token_for(UUID(text))
    except ValueError:
        raise NotFound("operator token") from None
