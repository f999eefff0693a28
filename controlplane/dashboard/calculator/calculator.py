"""The page of the KV calculator. The URL contains the question; the arithmetic is that of the REST API."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.dashboard.calculator.forms import (
    DEMO,
    MODELS,
    OWN,
    CalculatorForm,
    calculator_form,
    model_names,
)
from controlplane.dashboard.calculator.rows import Counted, counted_rows
from controlplane.dashboard.frame.pages import page
from controlplane.fleet.quality import newest_results
from kernels.calculator.calculating import calculate
from kernels.errors import InvalidArgument

REFUSED = 422
OF_NUMBERS = ("layers", "heads", "kv_heads", "head_size", "parameters", "memory", "bandwidth")
OF_MACHINES = ("share", "reserve", "weights", "windows")


@page()
def calculator(request: HttpRequest) -> HttpResponse:
    """Show the answer. Nothing is stored: anyone with the URL sees the same."""
    form = calculator_form(request.GET)
    answer = _counted(form)
    context: dict[str, Any] = {
        "form": form,
        "counted": answer,
        "headline": answer.headline if answer else "Nothing is counted: something in the question cannot be",
        "address": f"{request.path}?{_link(form)}",
        "body": json.dumps(form.body(), indent=2) if answer else "",
        "own_open": _is_open(form, OF_NUMBERS),
        "advanced": _is_open(form, OF_MACHINES),
    }
    return render(request, "dashboard/calculator/calculator.html", context, status=200 if answer else REFUSED)


def _is_open(form: CalculatorForm, names: Sequence[str]) -> bool:
    """Return whether to open a section, because a field in it was changed or has an error."""
    return any(name in form.errors or form.data.get(name) != _usual(form, name) for name in names)


def _usual(form: CalculatorForm, name: str) -> Any:
    return form.base_fields[name].initial or ""


def _counted(form: CalculatorForm) -> Counted | None:
    question = form.question()
    if question is None:
        return None
    try:
        answer = calculate(question)
    except InvalidArgument as error:
        form.refuse(error)
        return None
    return counted_rows(_name(form), question, answer, list(newest_results(model_names(form))))


def _name(form: CalculatorForm) -> str:
    model = form.cleaned_data["model"]
    return {DEMO: "the demo model", OWN: "this model"}.get(model) or dict(MODELS)[model]


def _link(form: CalculatorForm) -> str:
    """Return the values that differ from the defaults, as a query string."""
    pairs = list[tuple[str, str]]()
    for name in form.base_fields:
        submitted, default = form.data.get(name), _usual(form, name)
        if submitted == default:
            continue
        pairs += [(name, choice) for choice in submitted] if isinstance(submitted, list) else [(name, str(submitted))]
    return urlencode(pairs)
