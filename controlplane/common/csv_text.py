"""Tables as CSV: RFC 4180, UTF-8, and no cell that a spreadsheet would take for a formula."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from django.http import HttpResponse

CSV: Final = "text/csv; charset=utf-8"
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_response(heads: Sequence[str], rows: Iterable[Sequence[Any]], *, name: str) -> HttpResponse:
    """Return the table as a download. `name`: the file without extension; from our code, so it needs no quoting."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return HttpResponse(csv_text(heads, rows).encode(), content_type=CSV, headers=headers)


def csv_text(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(heads)
    writer.writerows([_cell(field) for field in row] for row in rows)
    return text.getvalue()


def csv_lines(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield the CSV line by line, for tables too long for memory."""
    yield csv_text(heads, ())
    for row in rows:
        text = io.StringIO()
        csv.writer(text).writerow([_cell(field) for field in row])
        yield text.getvalue()


def _cell(value: Any) -> str:
    """Return the cell's text. A quote before a formula keeps it text; spreadsheets remove it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULAS):
        return f"'{value}"
    return str(value)
