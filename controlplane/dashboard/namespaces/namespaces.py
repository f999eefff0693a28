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
    access = inside(request, org, ns, STATS_READ)
    window = window_asked(request)
    now = _now(access, window)
    scope = Place(access.namespace.organisation, access.namespace)
    policy = policy_in_force(scope)
    progress = policy_progress(scope, policy.levels)
    return render(
        request,
        "dashboard/namespaces/namespace.html",
        {
            **namespace_frame(request, access),
            **now,
            **_evictions(access, now["stats"]["blocks_left"], window_of(window, now["as_of"])),
            "windows": windows(window),
            "chart": _chart(access, window, policy, now["stats"]["from"]),
            "in_force": in_force(policy.effective.values, so_far(progress)),
            "progress": progress_words(progress),
            "revision": policy.levels[-1].revision,
            "may_manage": may(access.actor, MANAGE, access.namespace.organisation),
            "seq": int(now["stats"]["as_of"].timestamp() * 1_000),
        },
    )


@part
def namespace_now(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    """Render the numbers alone, for HTMX, whenever new ones are counted."""
    access = inside(request, org, ns, STATS_READ)
    context = {**_now(access, window_asked(request)), "namespace": access.namespace, "swapped": True}
    return render(request, "dashboard/namespaces/_namespace_now.html", context)


@part
def evictions(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    access = inside(request, org, ns, STATS_READ)
    window = window_asked(request)
    time_window = window_of(window, database_now())
    counts = totals_counts(_scope(access), time_window)
    blocks_left = {name.removesuffix("_blocks"): counts[name] for name in BLOCK_COLUMNS}
    context = {**_evictions(access, blocks_left, time_window), "namespace": access.namespace, "window": window}
    return render(request, "dashboard/namespaces/_evictions.html", context)


def _scope(access: Inside) -> Scope:
    return Scope(access.namespace.organisation_id, access.namespace.pk, None, access.actor.namespace_ids)


def _now(access: Inside, window: str) -> dict[str, Any]:
    stats = stats_answer(_scope(access), window, by_key=False)
    residences = held_most_first(residences_of(access.namespace))
    return {
        "window": window,
        "window_words": WINDOWS[window],
        "stats": stats,
        "headline": headline(stats, slug=access.namespace.slug, window=WINDOWS[window]),
        "facts": stats_row(stats),
        "bar": origin_bar(stats),
        "held": residences,
        "resident": sum(size for _, size, _ in residences),
        "held_title": held_title(len(residences)),
        "as_of": stats["as_of"],
    }


def _evictions(access: Inside, blocks_left: dict[str, int], window: Window) -> dict[str, Any]:
    """Return the context of the evictions panel; only operators get names."""
    slug, pk, window_words = access.namespace.slug, access.namespace.pk, WINDOWS[window.name]
    owner_words = "its" if access.actor.is_operator else "your"
    reported_blocks = taken(window, [pk]).get(pk, Taken())
    context: dict[str, Any] = {
        "evictions_title": words.title(blocks_left, reported_blocks, slug=slug, window=window_words, whose=owner_words),
        "evictions_as_of": window.end,
        "evictions_window": window_words,
        "losses": words.losses(blocks_left, reported_blocks, whose=owner_words),
    }
    if access.actor.is_operator:
        context["evicted_by"] = words.evicted_by(pairs_by_victim(window, pk), slug=slug, window=window_words)
        context["evicts"] = words.evicts(pairs_by_taker(window, pk), slug=slug, window=window_words)
    return context


def _chart(access: Inside, window: str, policy: InForce, since: datetime) -> Chart | None:
    series = series_answer(_scope(access), window, None)
    revised: list[Revised] = revisions_since(policy.levels, since, is_operator=access.actor.is_operator)
    return rate_chart(series, revised, window=WINDOWS[window])


# Another name, or its end


@page(methods=FORMS)
def namespace_edit(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    access = inside(request, org, ns, MANAGE if request.method == "POST" else READ)
    namespace = access.namespace
    name_form = NamespaceForm(initial={"name": namespace.name})
    delete_form = NamespaceDeleteForm(name=namespace.slug)
    if request.method == "POST" and request.POST.get("deed") == "delete":
        delete_form = NamespaceDeleteForm(request.POST, name=namespace.slug)
        if delete_form.is_valid():
            response = _delete(access, delete_form)
            if response is not None:
                return response
    elif request.method == "POST":
        name_form = NamespaceForm(request.POST)
        if name_form.is_valid() and _renamed(access, name_form):
            messages.success(request, f"{namespace.slug} has its new name.")
            return redirect("namespace", org, ns)
    context = {
        **namespace_frame(request, access),
        "named": name_form,
        "ending": delete_form,
        "is_default": namespace.slug == DEFAULT,
        "may_manage": may(access.actor, MANAGE, namespace.organisation),
        "held_title": held_title(len(held_most_first(residences_of(namespace)))),
        "pins": namespace.pins.count(),
        "is_refused": name_form.is_bound or delete_form.is_bound,
    }
    return render(
        request, "dashboard/namespaces/namespace_edit.html", context, status=422 if context["is_refused"] else 200
    )


def _renamed(access: Inside, form: NamespaceForm) -> bool:
    try:
        namespace_update(
            actor=access.actor,
            namespace=access.namespace,
            expected=frozenset({form.cleaned_data["revision"]}),
            name=form.cleaned_data["name"],
        )
    except InvalidFields as error:
        form.refuse(error.problems)
        return False
    except StaleRevision:
        form.add_error(None, f"{_meanwhile(access)} Yours is kept: send it again to replace that.")
        return False
    return True


def _delete(access: Inside, form: NamespaceDeleteForm) -> HttpResponse | None:
    try:
        operation = namespace_delete(
            actor=access.actor, namespace=access.namespace, expected=frozenset({form.cleaned_data["revision"]})
        )
    except Conflict as error:
        form.refuse(error.problems)
        return None
    except StaleRevision:
        form.add_error(None, f"{_meanwhile(access)} Send it again to delete it all the same.")
        return None
    return redirect("operation", operation.pk)


def _meanwhile(access: Inside) -> str:
    """Return the namespace's current name for an error, and reload its revision for the form."""
    access.namespace.refresh_from_db(fields=["name", "revision"])
    return f"Somebody changed it meanwhile: it is called “{access.namespace.name or access.namespace.slug}” now."
