"""What anybody may read: the API's description for programs, and its page for people."""

import hashlib
import json
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.api.docs import problem_example, problems, sections, shapes
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
    return render(request, "api/docs.html", _docs_context())


@lru_cache(maxsize=1)
def _openapi_bytes() -> tuple[bytes, str]:
    body = json.dumps(openapi_document(), ensure_ascii=False, separators=(",", ":")).encode()
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


@lru_cache(maxsize=1)
def _docs_context() -> dict[str, Any]:
    document = openapi_document()
    return {
        "sections": sections(document),
        "shapes": shapes(document),
        "problems": problems(document),
        "problem_example": problem_example(document),
        "scopes": SCOPES,
        "address": settings.ENVIRONMENT.base_url + BASE,
    }
