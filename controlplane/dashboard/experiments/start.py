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
    organisation = organisation_for(actor, org, READ)
    namespaces = _namespaces(actor, organisation)
    makes_key = _may(actor, MANAGE)
    form = TestForm(
        request.POST if request.method == "POST" else None,
        slugs=[namespace.slug for namespace in namespaces],
        makes_key=makes_key,
    )
    outcome, why = None, ""
    if form.is_bound and form.is_valid():
        try:
            outcome = _tried(actor, organisation, form.cleaned_data)
        except NotTried as error:
            why = str(error)
    status = 422 if form.errors else 502 if why else 200
    context = {
        **_frame(request, actor, organisation, namespaces),
        "form": form,
        "makes_key": makes_key,
        "is_frozen": organisation.is_suspended,
        "why": why,
        "outcome": outcome and _outcome(*outcome),
    }
    return render(request, "dashboard/experiments/start.html", context, status=status)


def _tried(actor: Actor, organisation: Organisation, cleaned: dict[str, Any]) -> tuple[Answer, Answer]:
    """Send the same prompt twice in the organisation's name."""
    if organisation.is_suspended:
        raise NotTried(f"{organisation.name} is suspended: its gateway refuses every request.")
    address = gateway_address()
    if address is None:
        raise NotTried("No gateway has joined this fleet yet, so there is nothing to send a request to.")
    if not _places.acquire(blocking=False):
        raise NotTried(f"{AT_ONCE} tests are running right now. Send yours again in a moment.")
    try:
        with _key(actor, organisation, cleaned.get("key")) as secret:
            gateway = Gateway(address, secret)
            model, messages = gateway.model(), _messages()
            first, second = (gateway.chat(model, messages, namespace=cleaned["namespace"]) for _ in LABELS)
            return first, second
    except NotAnswered as error:
        raise NotTried(str(error)) from None
    except LimitReached as error:
        raise NotTried(f"No key could be made for the test: {error}") from None
    finally:
        _places.release()


def _key(actor: Actor, organisation: Organisation, pasted: str | None) -> AbstractContextManager[str]:
    """Return a temporary key, or the pasted one if it belongs to this organisation."""
    if pasted is None:
        return short_key(actor, organisation)
    if not keys_of(organisation).filter(hash=secret_hash(pasted)).exists():
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


def _frame(
    request: HttpRequest, actor: Actor, organisation: Organisation, namespaces: list[Namespace]
) -> dict[str, Any]:
    live_tile = tile(
        live_message(organisation_group(organisation.pk)),
        slug=organisation.slug,
        title="",
        path=f"/ws/live/orgs/{organisation.slug}",
    )
    first_namespace = namespaces[0] if namespaces else None
    gateway = gateway_address() or ""
    return {
        "organisation": organisation,
        "sections": navigation.sections(actor, organisation.slug, request.path),
        "headline": f"{live_tile.fact}: how to get more"
        if live_tile.fact
        else "Nothing was counted in 24 h: send a request",
        "tile": live_tile,
        "gateway": gateway,
        "snippets": snippets(
            gateway=gateway,
            prefix=_prefix(organisation) if _may(actor, MANAGE_READ) else "",
            model=_model(first_namespace),
            namespace=first_namespace.slug if first_namespace else "default",
        ),
        "rules": rules(_own(actor, organisation, first_namespace, namespaces)),
    }


def _own(
    actor: Actor, organisation: Organisation, first_namespace: Namespace | None, namespaces: list[Namespace]
) -> Own:
    counts = totals_counts(Scope(organisation.pk, None, None, actor.namespace_ids), window_of("24h", database_now()))
    scope = FLEET if first_namespace is None else Place(organisation, first_namespace)
    in_force = effective(tuple(level.policy for level in levels_of(scope)))
    sampled_ids = [namespace.pk for namespace in namespaces[:20]]
    slugs = {namespace.pk: namespace.slug for namespace in namespaces}
    findings = [diagnosis(slugs[pk], report) for pk, report in diagnostics_of(sampled_ids).items()]
    return Own(
        prompt_tokens=counts["prompt_tokens"],
        missed={reason: counts[column] for reason, column in MISSED_COLUMN.items()},
        lifetime=lifetime(in_force),
        namespace=first_namespace.slug if first_namespace else "every namespace",
        finding=summary(findings),
    )


def _namespaces(actor: Actor, organisation: Organisation) -> list[Namespace]:
    """Return the first namespaces; `default`, which every organisation has, comes first."""
    rows = list(namespaces_visible(actor, organisation).order_by("slug")[:MOST_NAMESPACES])
    return sorted(rows, key=lambda namespace: (namespace.slug != "default", namespace.slug))


def _prefix(organisation: Organisation) -> str:
    """Return the prefix of the newest key with the scope infer."""
    key = keys_of(organisation).filter(scopes__contains=[KeyScope.INFER]).order_by("-created_at").first()
    return key.prefix if key else ""


def _model(namespace: Namespace | None) -> str:
    if namespace is None:
        return ""
    served = served_in([namespace.group_id]).get(namespace.group_id, [])
    return served[0].model if served else ""


def _may(actor: Actor, rule: Rule) -> bool:
    return rule.scope is None or actor.has(rule.scope)
