"""What somebody looks for in a list, in which order, and which page of it: as an address says it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

PAGE: Final = 50
MOST_WORDS: Final = 100
MOST_PAGES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """As the address says it; nonsense in it is as if nothing had been said."""

    find: str = ""
    order: str = ""
    page: int = 1

    def query(self, *, page: int = 1, order: str | None = None) -> str:
        said = {"find": self.find, "order": self.order if order is None else order, "page": page if page > 1 else ""}
        text = urlencode({name: value for name, value in said.items() if value})
        return f"?{text}"


@dataclass(frozen=True, slots=True)
class Pager:
    """`words`: "1 to 50 of 1,003"; links are None where there is no such page."""

    words: str
    total: int
    start: int
    previous: str | None
    next: str | None

    @property
    def end(self) -> int:
        return self.start + PAGE

    @property
    def has_others(self) -> bool:
        return self.previous is not None or self.next is not None


def asked(query: Mapping[str, str], *, orders: tuple[str, ...] = ("",)) -> Asked:
    """The first order is what holds where none is asked for."""
    order = query.get("order", "")
    page = query.get("page", "")
    return Asked(
        find=query.get("find", "").replace("\0", "").strip()[:MOST_WORDS],
        order=order if order in orders else orders[0],
        page=min(int(page), MOST_PAGES) if page.isascii() and page.isdigit() and len(page) < 10 and int(page) else 1,
    )


def pager(of: Asked, total: int) -> Pager:
    """Whoever asks for a page that is not there any more gets the last one."""
    pages = max(1, -(-total // PAGE))
    page = min(of.page, pages)
    start = (page - 1) * PAGE
    words = f"{start + 1:,} to {min(start + PAGE, total):,} of {total:,}" if total else "none"
    return Pager(
        words=words,
        total=total,
        start=start,
        previous=of.query(page=page - 1) if page > 1 else None,
        next=of.query(page=page + 1) if page < pages else None,
    )
