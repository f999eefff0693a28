"""Notifies every web process which organisations have new numbers. PostgreSQL delivers it at the commit."""

from collections.abc import Collection
from typing import Final

from django.db import connection

CHANNEL: Final = "luminet_usage"
EVERYBODY: Final = "*"
MOST_BYTES: Final = 7_000  # PostgreSQL allows less than 8,000


def usage_notify(organisations: Collection[int]) -> None:
    """Notify within the transaction that writes the numbers, so that a rollback notifies no process."""
    if not organisations:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, payload(organisations)])


def payload(organisations: Collection[int]) -> str:
    joined_ids = ",".join(map(str, sorted(organisations)))
    return joined_ids if len(joined_ids) <= MOST_BYTES else EVERYBODY


def payload_read(text: str) -> frozenset[int] | None:
    """Return the ids of the organisations; None means all."""
    return None if text == EVERYBODY else frozenset(int(part) for part in text.split(",") if part.isdecimal())
