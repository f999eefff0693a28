"""The price list, changed one price at a time, based on the revision that the page has shown."""

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from controlplane.analytics.money import Price
from controlplane.analytics.prices import Prices, price_list, prices_put
from controlplane.dashboard.frame.pages import FORMS, operator_of, page
from controlplane.dashboard.settings.forms import PriceForm, PriceRemoveForm
from controlplane.dashboard.settings.rows import EVERY, instead_words, price_rows, prices_headline
from controlplane.dashboard.settings.settings import REFUSED, shown
from tenants.access import OPERATE, OPERATE_ADMIN_READ, permit
from tenants.actor import Actor
from tenants.errors import FieldProblem, InvalidFields, StaleRevision

OUTDATED = "Somebody changed the price list meanwhile: it is revision {actual} now, and this page shows it."


@page(methods=FORMS)
def settings_prices(request: HttpRequest) -> HttpResponse:
    actor = operator_of(request)
    permit(actor, OPERATE if request.method == "POST" else OPERATE_ADMIN_READ)
    if request.method != "POST":
        return _page(request)
    return _remove(request, actor) if request.POST.get("do") == "remove" else _set(request, actor)


@page()
def settings_price_remove(request: HttpRequest) -> HttpResponse:
    """Ask for confirmation before a price is removed, and show which price applies instead."""
    permit(operator_of(request), OPERATE)
    prices, key = price_list(), (request.GET.get("model", ""), request.GET.get("day", ""))
    for price in prices.prices:
        if (price.model, str(price.valid_from)) == key:
            instead = instead_words(price.model, price.valid_from, prices.prices)
            context = {"found": prices, "price": price, "every": EVERY, "instead": instead}
            return shown(request, "price_remove", context)
    messages.error(request, "That price is not in the list any more, so nothing was removed.")
    return redirect("settings-prices")


def _set(request: HttpRequest, actor: Actor) -> HttpResponse:
    form = PriceForm(request.POST)
    if form.is_valid():
        prices = form.wanted(price_list().prices)
        try:
            _put(actor, prices, form.cleaned_data["revision"])
        except InvalidFields as error:
            form.refuse(_ours(error.problems, len(prices) - 1))
        except StaleRevision as error:
            form.add_error(None, f"{OUTDATED.format(actual=error.actual)} What you typed is kept: send it again.")
        else:
            model, day = form.cleaned_data["model"] or EVERY, form.cleaned_data["valid_from"]
            messages.success(request, f"The price of {model} from {day} on is in the list.")
            return redirect("settings-prices")
    return _page(request, form=form, status=REFUSED)


def _remove(request: HttpRequest, actor: Actor) -> HttpResponse:
    form = PriceRemoveForm(request.POST)
    if not form.is_valid():
        why = "the form names no price, or was not confirmed"
        return _page(request, refused=f"Nothing was removed: {why}.", status=REFUSED)
    cleaned = form.cleaned_data
    name = f"the price of {cleaned['model'] or EVERY} from {cleaned['valid_from']} on"
    before = price_list().prices
    remaining = [
        price for price in before if (price.model, price.valid_from) != (cleaned["model"], cleaned["valid_from"])
    ]
    try:
        _put(actor, remaining, cleaned["revision"])
    except InvalidFields as error:
        why = " ".join(f"{problem.message}." for problem in error.problems)
        return _page(request, refused=f"Not removed: without it the list {why}", status=REFUSED)
    except StaleRevision as error:
        return _page(request, refused=f"{OUTDATED.format(actual=error.actual)} Nothing was removed.", status=REFUSED)
    messages.success(request, f"Removed from the list: {name}.")
    return redirect("settings-prices")


def _put(actor: Actor, prices: Sequence[Price], revision: int) -> None:
    prices_put(actor=actor, prices=prices, expected=frozenset({revision}), now=timezone.now())


def _ours(problems: Sequence[FieldProblem], new_index: int) -> list[FieldProblem]:
    """Move problems of the typed price to its fields; problems of other prices keep their path."""
    return [FieldProblem(problem.field.removeprefix(f"prices.{new_index}."), problem.message) for problem in problems]


def _page(request: HttpRequest, *, form: PriceForm | None = None, refused: str = "", status: int = 200) -> HttpResponse:
    prices, today = price_list(), timezone.now().astimezone(UTC).date()
    initial = {"currency": prices.currency or "", "valid_from": today, "revision": prices.revision}
    context: dict[str, Any] = {
        "headline": prices_headline(prices),
        "found": prices,
        "rows": price_rows(prices, today),
        "every": EVERY,
        "form": form or PriceForm(initial=_begun(request, prices, initial)),
        "refused": refused,
        "today": today,
    }
    return shown(request, "prices", context, status=status)


def _begun(request: HttpRequest, prices: Prices, initial: dict[str, Any]) -> dict[str, Any]:
    """Return the initial values, with those of the price to change."""
    key = (request.GET.get("model", ""), request.GET.get("day", ""))
    for price in prices.prices:
        if (price.model, str(price.valid_from)) == key:
            names = ("model", "valid_from", "currency", "input", "cached_input", "output", "is_example")
            return initial | {name: getattr(price, name) for name in names}
    return initial
