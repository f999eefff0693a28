"""Join tokens: create, show once with the command to copy, and revoke."""

import json
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from controlplane.dashboard.fleet.forms import JoinTokenForm
from controlplane.dashboard.fleet.token_words import commands, ending, headline, whom
from controlplane.dashboard.frame.forms import ConfirmForm
from controlplane.dashboard.frame.pages import FORMS, operator_of, page
from controlplane.dashboard.frame.paging import asked, pager
from controlplane.dashboard.frame.words import made_before
from controlplane.dashboard.organisations.common import REFUSED, Refusal
from controlplane.fleet import selectors
from controlplane.fleet.join_tokens import join_token_create, join_token_revoke, join_token_state
from controlplane.fleet.models import JoinToken
from tenants.access import group_for, groups
from tenants.actor import Actor
from tenants.errors import IdempotencyKeyReused, NotFound
from tenants.models.organisations import DEFAULT
from tenants.services.idempotency import KeptAnswer, once
from tenants.services.namespaces import default_group

MOST_GROUPS = 500


@never_cache
@sensitive_post_parameters()
@page(methods=FORMS)
def join_tokens(request: HttpRequest) -> HttpResponse:
    actor = operator_of(request)
    if request.method != "POST":
        return _page(request)
    return _revoke(request, actor) if request.POST.get("do") == "revoke" else _create(request, actor)


def _create(request: HttpRequest, actor: Actor) -> HttpResponse:
    form = token_form(request.POST)
    if form.is_valid():
        try:
            created = _made(actor, form)
        except Refusal as error:
            form.refuse(error.problems)
        except IdempotencyKeyReused:
            form.add_error(None, "A token was made with this form already. Send it again to make another one.")
        else:
            if not isinstance(created, JoinToken):
                return _page(request, made=created, status=201)
            form.add_error(None, made_before(f"The join token {created.name} ({created.prefix}…)"))
    return _page(request, form=form, status=REFUSED)


def _made(actor: Actor, form: JoinTokenForm) -> tuple[JoinToken, str] | JoinToken:
    """Create a token and return it with its secret, or alone for a form sent twice, as by a reload."""
    cleaned = form.cleaned_data

    def perform() -> tuple[tuple[JoinToken, str], KeptAnswer]:
        token, secret = join_token_create(
            actor=actor,
            name=cleaned["name"],
            group=default_group() if cleaned["group"] == DEFAULT else group_for(cleaned["group"]),
            kind=cleaned["kind"] or None,
            agent=cleaned["agent"],
            uses=cleaned["uses"],
            expires_in=cleaned["lasts"],
        )
        return (token, secret.secret), KeptAnswer(201, json.dumps({"token": str(token.pk)}))

    payload = json.dumps({name: str(value) for name, value in sorted(cleaned.items())})
    outcome = once(
        actor=actor,
        key=f"page {cleaned['once']}",
        fingerprint=sha256(payload.encode()).digest(),
        now=timezone.now(),
        perform=perform,
    )
    if isinstance(outcome, KeptAnswer):
        return selectors.join_token_for(UUID(json.loads(outcome.body)["token"]))
    return outcome


def _revoke(request: HttpRequest, actor: Actor) -> HttpResponse:
    token = _chosen(request.POST.get("token", ""))
    form = _confirming(token, request.POST)
    if not form.is_valid():
        return _page(request, revoking=(token, form), status=REFUSED)
    join_token_revoke(actor=actor, token=token)
    messages.success(
        request, f"The join token {token.name} ({token.prefix}…) is revoked: nobody joins with it any more."
    )
    return redirect("join-tokens")


def _page(
    request: HttpRequest,
    *,
    form: JoinTokenForm | None = None,
    made: tuple[JoinToken, str] | None = None,
    revoking: tuple[JoinToken, ConfirmForm] | None = None,
    status: int = 200,
) -> HttpResponse:
    now, tokens = timezone.now(), selectors.join_tokens().order_by("-created_at", "pk")
    pages = pager(asked(request.GET.dict()), tokens)
    rows = [(join_token, join_token_state(join_token, now=now), whom(join_token)) for join_token in pages]
    if revoking is None and "revoke" in request.GET:
        token = _chosen(request.GET["revoke"])
        revoking = (token, _confirming(token))
    context: dict[str, Any] = {
        "headline": headline([state for _, state, _ in rows], pages.total),
        "pager": pages,
        "rows": rows,
        "form": form or token_form(),
        "once": uuid4(),
    }
    if made is not None:
        token, secret = made
        context |= {"made": token, "secret": secret}
        context["commands"] = commands(address_of_ours(request), secret, kind=token.kind, agent=token.agent)
    if revoking is not None:
        context |= {"ending": revoking[0], "ending_words": ending(revoking[0]), "ending_form": revoking[1]}
    return render(request, "dashboard/fleet/join_tokens.html", context, status=status)


def token_form(submitted: Any = None) -> JoinTokenForm:
    slugs = groups().order_by("slug").values_list("slug", flat=True)[:MOST_GROUPS]
    choices = [(slug, slug) for slug in dict.fromkeys([DEFAULT, *slugs])]
    return JoinTokenForm(submitted, groups=choices)


def address_of_ours(request: HttpRequest) -> str:
    """Return this site's URL for agents, as the user reached it."""
    return f"{request.scheme}://{request.get_host()}"


def _confirming(token: JoinToken, submitted: Any = None) -> ConfirmForm:
    return ConfirmForm(submitted, name=token.name, what="the token’s name", prefix="end")


def _chosen(text: str) -> JoinToken:
    try:
        return selectors.join_token_for(UUID(text))
    except ValueError:
        raise NotFound("join token") from None
