"""Pages of a list: a fixed order, and a constant number of queries."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from django.db.models import Model, QuerySet
from ninja import Query

from controlplane.api.cursors import cursor_decode, cursor_encode
from controlplane.api.routing import Answer
from controlplane.api.schemas.base import Page
from tenants.crypto import purpose_key

Limit = Annotated[int, Query(50, ge=1, le=200, description="Items on a page.")]
Cursor = Annotated[str | None, Query(None, max_length=1024, description="next_cursor of the page before.")]
Row = TypeVar("Row", bound=Model)


def page_of(objects_by_slug: Mapping[str, Any], *, kind: str, limit: int, cursor: str | None) -> Answer:
    """Return a page of objects that are in no table, ordered by their slugs."""
    key = purpose_key("signing_key", "cursors")
    after = "" if cursor is None else str(cursor_decode(kind, cursor, key=key))
    slugs = [slug for slug in sorted(objects_by_slug) if slug > after]
    next_cursor = cursor_encode(kind, slugs[limit - 1], key=key) if len(slugs) > limit else None
    return Answer(Page[Any](items=[objects_by_slug[slug] for slug in slugs[:limit]], next_cursor=next_cursor))


def page(
    rows: "QuerySet[Row]",
    *,
    kind: str,
    by: str,
    limit: int,
    cursor: str | None,
    show: Callable[[list[Row]], list[Any]],
    newest_first: bool = False,
) -> Answer:
    """Return a page of rows ordered by a unique column, whose last value on the previous page is the cursor."""
    key = purpose_key("signing_key", "cursors")
    if cursor is not None:
        after = cursor_decode(kind, cursor, key=key)
        rows = rows.filter(**{f"{by}__{'lt' if newest_first else 'gt'}": after})
    page_rows = list(rows.order_by(f"-{by}" if newest_first else by)[: limit + 1])
    has_more, page_rows = len(page_rows) > limit, page_rows[:limit]
    last_position = getattr(page_rows[-1], by) if has_more else None
    next_cursor = (
        cursor_encode(kind, last_position if isinstance(last_position, int) else str(last_position), key=key)
        if has_more
        else None
    )
    return Answer(Page[Any](items=show(page_rows), next_cursor=next_cursor))
