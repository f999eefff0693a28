"""The KV formats that may serve traffic: measured results, and overrides by operators."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.dashboard.frame.pages import FORMS, operator_of, page
from controlplane.dashboard.frame.paging import page_asked, pager
from controlplane.dashboard.settings.forms import OverrideForm
from controlplane.dashboard.settings.rows import figures_words, may_serve, quality_headline
from controlplane.dashboard.settings.settings import REFUSED, shown
from controlplane.fleet.quality_results import quality_list, quality_override
from tenants.access import OPERATE, OPERATE_READ, permit
from tenants.errors import InvalidFields

PLACE = {"model": "model", "revision": "model_revision", "backend": "backend", "kv_dtype": "kv_dtype"}  # in the form


@page(methods=FORMS)
def settings_quality(request: HttpRequest) -> HttpResponse:
    actor = operator_of(request)
    permit(actor, OPERATE if request.method == "POST" else OPERATE_READ)
    if request.method != "POST":
        return _page(request)
    form = OverrideForm(request.POST)
    if form.is_valid():
        cleaned = form.cleaned_data
        target = {name: cleaned[field] for name, field in PLACE.items()}
        try:
            override = quality_override(actor=actor, **target, note=cleaned["note"])
        except InvalidFields as error:
            form.refuse(error.problems)
        else:
            words = (
                f"{override.kv_dtype} on {override.model} may serve until its next result. "
                "It stands in the audit trail."
            )
            messages.success(request, words)
            return redirect("settings-quality")
    return _page(request, form=form, status=REFUSED)


def _page(request: HttpRequest, *, form: OverrideForm | None = None, status: int = 200) -> HttpResponse:
    results = quality_list()
    pages = pager(page_asked(request.GET), results)
    begun = {field: request.GET.get(name, "")[:200] for name, field in PLACE.items()}
    context: dict[str, Any] = {
        "headline": quality_headline(results),
        "rows": [
            (quality_result, may_serve(quality_result), figures_words(quality_result.figures))
            for quality_result in pages
        ],
        "pager": pages,
        "form": form or OverrideForm(initial=begun),
    }
    return shown(request, "quality", context, status=status)
