"""Search, sort order and page of a list, read from the query string and written back. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator

PAGE: Final = 50
MOST_WORDS: Final = 100
MOST_PAGES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """A list request from the query string; invalid values are ignored. Links keep `others` unchanged."""

    find: str = ""
    order: str = ""
    page: int = 1
    others: Mapping[str, str] = field(default_factory=dict)

    def query(self, *, page: int = 1, order: str | None = None) -> str:
        parameters = {"find": self.find, "order": self.order if order is None else order, **self.others}
        return (
            f"?{urlencode({name: value for name, value in {**parameters, 'page': page - 1 and page}.items() if value})}"
        )


class Pager(Page[Any]):
    """A page of a list, with links to its neighbours. `words`: "1 to 50 of 1,003"."""

    paginator: "Pages"

    @property
    def rows(self) -> Any:
        """Return the rows of this page; for a queryset, a slice."""
        return self.object_list

    @property
    def total(self) -> int:
        return self.paginator.count

    @property
    def words(self) -> str:
        return f"{self.start_index():,} to {self.end_index():,} of {self.total:,}" if self.total else "none"

    @property
    def previous(self) -> str:
        return self.paginator.asked.query(page=self.number - 1) if self.has_previous() else ""

    @property
    def next(self) -> str:
        return self.paginator.asked.query(page=self.number + 1) if self.has_next() else ""

    @property
    def has_others(self) -> bool:
        return self.has_other_pages()


class Pages(Paginator):  # type: ignore[type-arg]
    def __init__(self, rows: Any, list_request: Asked) -> None:
        super().__init__(rows, PAGE)
        self.asked = list_request

    def _get_page(self, *args: Any, **kwargs: Any) -> Pager:
        return Pager(*args, **kwargs)


def asked(
    query: Mapping[str, str], *, orders: tuple[str, ...] = ("",), others: Mapping[str, str] | None = None
) -> Asked:
    """Parse the query string. Without a valid order, the first of `orders` applies."""
    order, page = query.get("order", ""), query.get("page", "")
    return Asked(
        find=query.get("find", "").replace("\0", "").strip()[:MOST_WORDS],
        order=order if order in orders else orders[0],
        page=min(int(page), MOST_PAGES) if page.isascii() and page.isdigit() and len(page) < 10 and int(page) else 1,
        others=others or {},
    )


def page_asked(query: Mapping[str, str], **other_parameters: str) -> Asked:
    """Parse the query string of a list that cannot be searched."""
    return asked({"page": query.get("page", "")}, others=other_parameters)


def pager(list_request: Asked, rows: Any, total: int | None = None) -> Pager:
    """Return the requested page, or the last one if there are fewer. Pass `total` if it is known."""
    pages = Pages(rows, list_request)
    if total is not None:
        pages.count = total
    return pages.get_page(list_request.page)  # type: ignore[return-value]
