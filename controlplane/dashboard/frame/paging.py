"""Which page of a list an address asks for, and the way to the ones beside it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

PAGE: Final = 50
MOST_PAGES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Pager:
    """`words`: "1 to 50 of 1,003"; links are None where there is no such page."""

    words: str
    start: int
    previous: str | None
    next: str | None

    @property
    def end(self) -> int:
        return self.start + PAGE

    @property
    def has_others(self) -> bool:
        return self.previous is not None or self.next is not None


def pager(query: Mapping[str, str], total: int) -> Pager:
    """Whoever asks for a page that is not there gets the last one; everything else that was asked for stays."""
    pages = max(1, -(-total // PAGE))
    page = min(_page(query.get("page", "")), pages)
    start = (page - 1) * PAGE
    return Pager(
        words=f"{start + 1:,} to {min(start + PAGE, total):,} of {total:,}" if total else "none",
        start=start,
        previous=_address(query, page - 1) if page > 1 else None,
        next=_address(query, page + 1) if page < pages else None,
    )


def _page(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    return max(1, min(int(text), MOST_PAGES)) if is_number else 1


def _address(query: Mapping[str, str], page: int) -> str:
    said = {name: value for name, value in query.items() if name != "page" and value}
    return f"?{urlencode({**said, 'page': page})}"
