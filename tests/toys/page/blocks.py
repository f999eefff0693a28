"""How many blocks a prompt fills."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.dashboard.frame.pages import page

from .block_forms import BlocksForm

BLOCK_TOKENS = 16


@page()
def blocks(request: HttpRequest) -> HttpResponse:
    form = BlocksForm(request.GET or None)
    tokens = form.cleaned_data["tokens"] if form.is_valid() else 0
    context = {"form": form, "tokens": tokens, "blocks": tokens // BLOCK_TOKENS}
    return render(request, "dashboard/calculator/blocks.html", context, status=422 if form.errors else 200)
