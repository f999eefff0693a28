"""Search, verify and export the audit trail. Operators only."""

import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.common.csv_text import CSV, csv_lines
from controlplane.dashboard.audit.forms import AuditForm
from controlplane.dashboard.audit.rows import trail_row
from controlplane.dashboard.audit.words import headline
from controlplane.dashboard.frame.pages import FORMS, operator_of, page
from tenants.access import OPERATE_ADMIN_READ, permit
from tenants.actor import Actor
from tenants.audit import Verdict, audit_lines, audit_verify, audit_views, record_seen, trail_length
from tenants.errors import NotFound
from tenants.listing import trail_found
from tenants.models import AuditRecord

PAGE: Final = 50
CHUNK: Final = 500  # lines sent together
REFUSED = 422
HEAD = re.compile(r"[0-9]{1,18}:[0-9a-f]{64}")
JSON_LINES = "application/x-ndjson"
HEADS: Final = (
    "seq", "at", "actor_kind", "actor_id", "actor_name", "organisation_id", "verb", "target", "before", "after",
    "address", "request_id", "hash",
)  # fmt: skip


@page(methods=FORMS)
def audit(request: HttpRequest) -> HttpResponse:
    actor = operator_of(request)
    permit(actor, OPERATE_ADMIN_READ)
    if request.method != "POST":
        return _page(request, actor)
    typed_head = request.POST.get("head", "").strip()
    if typed_head and not HEAD.fullmatch(typed_head):
        problem = f"Head: “{typed_head[:90]}” is no head of a trail: a number, a colon and 64 digits from 0 to f."
        return _page(request, actor, head=typed_head, head_problem=problem, status=REFUSED)
    began = time.perf_counter()
    verdict = audit_verify(remembered_head=typed_head or None)
    return _page(request, actor, head=typed_head, verdict=verdict, seconds=time.perf_counter() - began)


@page()
def audit_export(request: HttpRequest) -> Any:
    """Stream all matching records as stored, oldest first, page by page to bound memory."""
    actor = operator_of(request)
    permit(actor, OPERATE_ADMIN_READ)
    form = AuditForm(request.GET.dict())
    rows = _rows(actor, form)
    if rows is None:
        return _page(request, actor, status=REFUSED)
    is_csv = request.GET.get("format") == "csv"
    lines = (
        csv_lines(HEADS, map(_csv_row, audit_views(rows))) if is_csv else (f"{line}\n" for line in audit_lines(rows))
    )
    name = f"luminet-audit-{timezone.now():%Y%m%d-%H%M%S}.{'csv' if is_csv else 'jsonl'}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return StreamingHttpResponse(_chunks(lines), content_type=CSV if is_csv else JSON_LINES, headers=headers)


def _page(
    request: HttpRequest,
    actor: Actor,
    *,
    head: str = "",
    head_problem: str = "",
    verdict: Verdict | None = None,
    seconds: float = 0.0,
    status: int = 200,
) -> HttpResponse:
    form = AuditForm(request.GET.dict())
    rows, before = _rows(actor, form), _before(request.GET.get("before", ""))
    records = [] if rows is None else list((rows if before is None else rows.filter(seq__lt=before))[: PAGE + 1])
    page_records, has_more, total = records[:PAGE], len(records) > PAGE, trail_length()
    is_refused = rows is None
    context = {
        "headline": "Nothing is looked for: something in the question cannot be"
        if is_refused
        else headline(
            total, shown=len(page_records), is_asked=form.is_asked, has_more=has_more, is_first=before is None
        ),
        "total": total,
        "form": form,
        "rows": [trail_row(record_seen(record, actor)) for record in page_records],
        "is_refused": is_refused,
        "older": form.query(before=page_records[-1].seq) if has_more else "",
        "newest": form.query() if before is not None else "",
        "json_lines": form.query(format="jsonl"),
        "csv": form.query(format="csv"),
        "head": head,
        "head_problem": head_problem,
        "verdict": verdict,
        "seconds": seconds,
    }
    code = REFUSED if is_refused and status == 200 else status
    return render(request, "dashboard/audit/audit.html", context, status=code)


def _rows(actor: Actor, form: AuditForm) -> "QuerySet[AuditRecord] | None":
    """Return the matching records; None if the search is invalid, and the form then says why."""
    if not form.is_valid():
        return None
    try:
        return trail_found(actor, form.sought())
    except NotFound:
        form.add_error("org", f"Organisation: there is none with the slug “{form.cleaned_data['org']}”.")
        return None


def _before(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _csv_row(view: dict[str, Any]) -> list[Any]:
    actor = view["actor"]
    flat = {**view, "actor_kind": actor["kind"], "actor_id": actor["id"], "actor_name": actor["name"]}
    return [_plain(flat[name]) for name in HEADS]


def _plain(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, sort_keys=True) if isinstance(value, dict | list) else value


async def _chunks(lines: Iterator[str]) -> AsyncIterator[str]:
    """Yield the lines in chunks. The next rows are read only after a chunk is sent."""
    while chunk := await sync_to_async(_taken)(lines):
        yield chunk


def _taken(lines: Iterator[str]) -> str:
    return "".join(islice(lines, CHUNK))
