"""The front page of a namespace, and the page to rename or delete it."""

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from controlplane.analytics.columns import BLOCK_COLUMNS
from controlplane.analytics.evictions import Taken, pairs_by_taker, pairs_by_victim, taken
from controlplane.analytics.held import residences_of
from controlplane.analytics.selectors import Scope, database_now, totals_counts
from controlplane.analytics.stats import series_answer, stats_answer
from controlplane.analytics.windows import Window, window_of
from controlplane.dashboard.frame.charts import Chart
from controlplane.dashboard.frame.pages import FORMS, page, part
from controlplane.dashboard.namespaces import evictions as words
from controlplane.dashboard.namespaces.facts import (
    Revised,
    headline,
    held_most_first,
    held_title,
    in_force,
    origin_bar,
    rate_chart,
    stats_row,
)
from controlplane.dashboard.namespaces.forms import NamespaceDeleteForm, NamespaceForm
from controlplane.dashboard.namespaces.frames import (
    WINDOWS,
    Inside,
    inside,
    may,
    namespace_frame,
    window_asked,
    windows,
)
from controlplane.dashboard.namespaces.revisions import revisions_since
from controlplane.dashboard.policies.progress import policy_progress, progress_words, so_far
from tenants.access import MANAGE, READ, STATS_READ
from tenants.errors import Conflict, InvalidFields, StaleRevision
from tenants.levels import Place
from tenants.models.organisations import DEFAULT
from tenants.selectors import InForce, policy_in_force
from tenants.services.namespaces import namespace_delete, namespace_update


@page()
def namespace(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    found = inside(request, org, ns, STATS_READ)
    window = window_asked(request)
    now = _now(found, window)
    place = Place(found.namespace.organisation, found.namespace)
    policy = policy_in_force(place)
    progress = policy_progress(place, policy.levels)
    return render(
        request,
        "dashboard/namespaces/namespace.html",
        {
            **namespace_frame(request, found),
            **now,
            **_evictions(found, now["stats"]["blocks_left"], window_of(window, now["as_of"])),
            "windows": windows(window),
            "chart": _chart(found, window, policy, now["stats"]["from"]),
            "in_force": in_force(policy.effective.values, so_far(progress)),
            "progress": progress_words(progress),
            "revision": policy.levels[-1].revision,
            "may_manage": may(found.actor, MANAGE, found.namespace.organisation),
            "seq": int(now["stats"]["as_of"].timestamp() * 1_000),
        },
    )


@part
def namespace_now(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    """Render the numbers alone, for HTMX, whenever new ones are counted."""
    found = inside(request, org, ns, STATS_READ)
    context = {**_now(found, window_asked(request)), "namespace": found.namespace, "swapped": True}
    return render(request, "dashboard/namespaces/_namespace_now.html", context)


@part
def evictions(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    found = inside(request, org, ns, STATS_READ)
    window = window_asked(request)
    read = window_of(window, database_now())
    counts = totals_counts(_scope(found), read)
    left = {name.removesuffix("_blocks"): counts[name] for name in BLOCK_COLUMNS}
    context = {**_evictions(found, left, read), "namespace": found.namespace, "window": window}
    return render(request, "dashboard/namespaces/_evictions.html", context)


def _scope(found: Inside) -> Scope:
    return Scope(found.namespace.organisation_id, found.namespace.pk, None, found.actor.namespace_ids)


def _now(found: Inside, window: str) -> dict[str, Any]:
    stats = stats_answer(_scope(found), window, by_key=False)
    held = held_most_first(residences_of(found.namespace))
    return {
        "window": window,
        "window_words": WINDOWS[window],
        "stats": stats,
        "headline": headline(stats, slug=found.namespace.slug, window=WINDOWS[window]),
        "facts": stats_row(stats),
        "bar": origin_bar(stats),
        "held": held,
        "resident": sum(size for _, size, _ in held),
        "held_title": held_title(len(held)),
        "as_of": stats["as_of"],
    }


def _evictions(found: Inside, left: dict[str, int], window: Window) -> dict[str, Any]:
    """Return the context of the evictions panel; only operators get names."""
    slug, pk, said = found.namespace.slug, found.namespace.pk, WINDOWS[window.name]
    whose = "its" if found.actor.is_operator else "your"
    lost = taken(window, [pk]).get(pk, Taken())
    told: dict[str, Any] = {
        "evictions_title": words.title(left, lost, slug=slug, window=said, whose=whose),
        "evictions_as_of": window.end,
        "evictions_window": said,
        "losses": words.losses(left, lost, whose=whose),
    }
    if found.actor.is_operator:
        told["evicted_by"] = words.evicted_by(pairs_by_victim(window, pk), slug=slug, window=said)
        told["evicts"] = words.evicts(pairs_by_taker(window, pk), slug=slug, window=said)
    return told


def _chart(found: Inside, window: str, policy: InForce, since: datetime) -> Chart | None:
    series = series_answer(_scope(found), window, None)
    revised: list[Revised] = revisions_since(policy.levels, since, is_operator=found.actor.is_operator)
    return rate_chart(series, revised, window=WINDOWS[window])


# Another name, or its end


@page(methods=FORMS)
def namespace_edit(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    found = inside(request, org, ns, MANAGE if request.method == "POST" else READ)
    namespace = found.namespace
    named = NamespaceForm(initial={"name": namespace.name})
    ending = NamespaceDeleteForm(name=namespace.slug)
    if request.method == "POST" and request.POST.get("deed") == "delete":
        ending = NamespaceDeleteForm(request.POST, name=namespace.slug)
        if ending.is_valid():
            answer = _delete(found, ending)
            if answer is not None:
                return answer
    elif request.method == "POST":
        named = NamespaceForm(request.POST)
        if named.is_valid() and _renamed(found, named):
            messages.success(request, f"{namespace.slug} has its new name.")
            return redirect("namespace", org, ns)
    context = {
        **namespace_frame(request, found),
        "named": named,
        "ending": ending,
        "is_default": namespace.slug == DEFAULT,
        "may_manage": may(found.actor, MANAGE, namespace.organisation),
        "held_title": held_title(len(held_most_first(residences_of(namespace)))),
        "pins": namespace.pins.count(),
        "is_refused": named.is_bound or ending.is_bound,
    }
    return render(
        request, "dashboard/namespaces/namespace_edit.html", context, status=422 if context["is_refused"] else 200
    )


def _renamed(found: Inside, form: NamespaceForm) -> bool:
    try:
        namespace_update(
            actor=found.actor,
            namespace=found.namespace,
            expected=frozenset({form.cleaned_data["revision"]}),
            name=form.cleaned_data["name"],
        )
    except InvalidFields as error:
        form.refuse(error.problems)
        return False
    except StaleRevision:
        form.add_error(None, f"{_meanwhile(found)} Yours is kept: send it again to replace that.")
        return False
    return True


def _delete(found: Inside, form: NamespaceDeleteForm) -> HttpResponse | None:
    try:
        operation = namespace_delete(
            actor=found.actor, namespace=found.namespace, expected=frozenset({form.cleaned_data["revision"]})
        )
    except Conflict as error:
        form.refuse(error.problems)
        return None
    except StaleRevision:
        form.add_error(None, f"{_meanwhile(found)} Send it again to delete it all the same.")
        return None
    return redirect("operation", operation.pk)


def _meanwhile(found: Inside) -> str:
    """Return the namespace's current name for an error, and reload its revision for the form."""
    found.namespace.refresh_from_db(fields=["name", "revision"])
    return f"Somebody changed it meanwhile: it is called “{found.namespace.name or found.namespace.slug}” now."
