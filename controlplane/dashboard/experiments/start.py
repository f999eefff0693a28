"""The page "Get hits": snippets to copy, rules with the organisation's own numbers, and a test request."""

from contextlib import AbstractContextManager, nullcontext
from threading import BoundedSemaphore
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from controlplane.analytics.columns import MISSED_COLUMN
from controlplane.analytics.diagnostics import diagnostics_of
from controlplane.analytics.selectors import Scope, database_now, totals_counts
from controlplane.analytics.stats import live_message
from controlplane.analytics.windows import window_of
from controlplane.dashboard.experiments.asking import Answer, Gateway, NotAnswered
from controlplane.dashboard.experiments.forms import MOST_NAMESPACES, TestForm
from controlplane.dashboard.experiments.rules import Own, rules
from controlplane.dashboard.experiments.sent import pair_headline, sent_rows, speed_words
from controlplane.dashboard.experiments.short_keys import short_key
from controlplane.dashboard.experiments.snippets import snippets
from controlplane.dashboard.experiments.texts import fresh_text, words_for
from controlplane.dashboard.frame import navigation
from controlplane.dashboard.frame.pages import FORMS, actor_within, page
from controlplane.dashboard.frame.tiles import tile
from controlplane.dashboard.home.customer import lifetime
from controlplane.dashboard.namespaces.diagnosis import diagnosis, summary
from controlplane.fleet.quality import served_in
from controlplane.fleet.selectors import gateway_address
from controlplane.live.listeners import organisation_group
from tenants.access import MANAGE, MANAGE_READ, READ, Rule, keys_of, namespaces_visible, organisation_for
from tenants.actor import Actor
from tenants.actor import Scope as KeyScope
from tenants.crypto import secret_hash
from tenants.errors import LimitReached
from tenants.levels import FLEET, Place, levels_of
from tenants.models import Namespace, Organisation
from tenants.policy import effective

TOKENS: Final = 1_000  # of the prompt, roughly, for the demo model
AT_ONCE: Final = 4  # in one process; each test blocks a thread while the gateway answers
_places = BoundedSemaphore(AT_ONCE)
LABELS: Final = ("First request", "Second request")


class NotTried(Exception):
    """The test failed; the message says why nothing was sent, or what happened."""


@never_cache
@sensitive_post_parameters("key")
@page(methods=FORMS)
def start(request: HttpRequest, org: str) -> HttpResponse:
    actor = actor_within(request, org)
    found = organisation_for(actor, org, READ)
    namespaces = _namespaces(actor, found)
    makes_key = _may(actor, MANAGE)
    form = TestForm(
        request.POST if request.method == "POST" else None,
        slugs=[one.slug for one in namespaces],
        makes_key=makes_key,
    )
    outcome, why = None, ""
    if form.is_bound and form.is_valid():
        try:
            outcome = _tried(actor, found, form.cleaned_data)
        except NotTried as error:
            why = str(error)
    status = 422 if form.errors else 502 if why else 200
    context = {
        **_frame(request, actor, found, namespaces),
        "form": form,
        "makes_key": makes_key,
        "is_frozen": found.is_suspended,
        "why": why,
        "outcome": outcome and _outcome(*outcome),
    }
    return render(request, "dashboard/experiments/start.html", context, status=status)


def _tried(actor: Actor, found: Organisation, told: dict[str, Any]) -> tuple[Answer, Answer]:
    """Send the same prompt twice in the organisation's name."""
    if found.is_suspended:
        raise NotTried(f"{found.name} is suspended: its gateway refuses every request.")
    address = gateway_address()
    if address is None:
        raise NotTried("No gateway has joined this fleet yet, so there is nothing to send a request to.")
    if not _places.acquire(blocking=False):
        raise NotTried(f"{AT_ONCE} tests are running right now. Send yours again in a moment.")
    try:
        with _key(actor, found, told.get("key")) as secret:
            gateway = Gateway(address, secret)
            model, messages = gateway.model(), _messages()
            first, second = (gateway.chat(model, messages, namespace=told["namespace"]) for _ in LABELS)
            return first, second
    except NotAnswered as error:
        raise NotTried(str(error)) from None
    except LimitReached as error:
        raise NotTried(f"No key could be made for the test: {error}") from None
    finally:
        _places.release()


def _key(actor: Actor, found: Organisation, pasted: str | None) -> AbstractContextManager[str]:
    """Return a temporary key, or the pasted one if it belongs to this organisation."""
    if pasted is None:
        return short_key(actor, found)
    if not keys_of(found).filter(hash=secret_hash(pasted)).exists():
        raise NotTried("This is no key of this organisation, or it is revoked. Nothing was sent.")
    return nullcontext(pasted)


def _messages() -> list[dict[str, str]]:
    return [
        {"role": "system", "content": fresh_text(words_for(TOKENS))},
        {"role": "user", "content": "What is this about?"},
    ]


def _outcome(first: Answer, second: Answer) -> dict[str, Any]:
    return {
        "headline": pair_headline(first, second),
        "speed": speed_words(first, second),
        "rows": sent_rows(list(zip(LABELS, (first, second), strict=True))),
    }


def _frame(request: HttpRequest, actor: Actor, found: Organisation, namespaces: list[Namespace]) -> dict[str, Any]:
    shown = tile(
        live_message(organisation_group(found.pk)), slug=found.slug, title="", path=f"/ws/live/orgs/{found.slug}"
    )
    first = namespaces[0] if namespaces else None
    gateway = gateway_address() or ""
    return {
        "organisation": found,
        "sections": navigation.sections(actor, found.slug, request.path),
        "headline": f"{shown.fact}: how to get more" if shown.fact else "Nothing was counted in 24 h: send a request",
        "tile": shown,
        "gateway": gateway,
        "snippets": snippets(
            gateway=gateway,
            prefix=_prefix(found) if _may(actor, MANAGE_READ) else "",
            model=_model(first),
            namespace=first.slug if first else "default",
        ),
        "rules": rules(_own(actor, found, first, namespaces)),
    }


def _own(actor: Actor, found: Organisation, first: Namespace | None, namespaces: list[Namespace]) -> Own:
    counts = totals_counts(Scope(found.pk, None, None, actor.namespace_ids), window_of("24h", database_now()))
    place = FLEET if first is None else Place(found, first)
    in_force = effective(tuple(level.policy for level in levels_of(place)))
    looked_at = [one.pk for one in namespaces[:20]]
    slugs = {one.pk: one.slug for one in namespaces}
    findings = [diagnosis(slugs[pk], told) for pk, told in diagnostics_of(looked_at).items()]
    return Own(
        prompt_tokens=counts["prompt_tokens"],
        missed={reason: counts[column] for reason, column in MISSED_COLUMN.items()},
        lifetime=lifetime(in_force),
        namespace=first.slug if first else "every namespace",
        finding=summary(findings),
    )


def _namespaces(actor: Actor, found: Organisation) -> list[Namespace]:
    """Return the first namespaces; `default`, which every organisation has, comes first."""
    rows = list(namespaces_visible(actor, found).order_by("slug")[:MOST_NAMESPACES])
    return sorted(rows, key=lambda one: (one.slug != "default", one.slug))


def _prefix(found: Organisation) -> str:
    """Return the prefix of the newest key with the scope infer."""
    key = keys_of(found).filter(scopes__contains=[KeyScope.INFER]).order_by("-created_at").first()
    return key.prefix if key else ""


def _model(namespace: Namespace | None) -> str:
    if namespace is None:
        return ""
    served = served_in([namespace.group_id]).get(namespace.group_id, [])
    return served[0].model if served else ""


def _may(actor: Actor, rule: Rule) -> bool:
    return rule.scope is None or actor.has(rule.scope)
