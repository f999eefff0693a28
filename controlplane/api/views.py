"""Public views: the API's description for programs, and its reference for people."""

import hashlib
import json
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.api.docs import Section, described, problem_example, problems, sections, shapes
from controlplane.api.openapi import BASE, openapi_document
from controlplane.api.openapi_words import SCOPES

SHARED = "public, max-age=0, must-revalidate"


@require_safe
def openapi(request: HttpRequest) -> HttpResponse:
    body, tag = _openapi_bytes()
    headers = {"ETag": tag, "Cache-Control": SHARED}
    if tag in request.headers.get("If-None-Match", ""):
        return HttpResponse(status=304, headers=headers)
    return HttpResponse(body, content_type="application/json", headers=headers)


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    return render(request, "api/docs.html", _conventions())


@require_safe
def docs_objects(request: HttpRequest) -> HttpResponse:
    return render(
        request,
        "api/docs_objects.html",
        {"sections": _sections(), "shapes": shapes(openapi_document()), "objects": True},
    )


@require_safe
def docs_section(request: HttpRequest, slug: str) -> HttpResponse:
    section = next((section for section in _sections() if section.slug == slug), None)
    if section is None:
        raise Http404
    context = {"sections": _sections(), "section": section, "operations": described(openapi_document(), section)}
    return render(request, "api/docs_section.html", context)


@lru_cache(maxsize=1)
def _openapi_bytes() -> tuple[bytes, str]:
    body = json.dumps(openapi_document(), ensure_ascii=False, separators=(",", ":")).encode()
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


@lru_cache(maxsize=1)
def _sections() -> list[Section]:
    return sections(openapi_document())


@lru_cache(maxsize=1)
def _conventions() -> dict[str, Any]:
    document = openapi_document()
    return {
        "sections": _sections(),
        "shapes": shapes(document),
        "conventions": True,
        "problems": problems(document),
        "problem_example": problem_example(document),
        "scopes": SCOPES,
        "address": settings.ENVIRONMENT.base_url + BASE,
    }
