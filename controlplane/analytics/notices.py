"""Who has new numbers, told to every web process at once: by PostgreSQL, at the commit that brings them."""

from collections.abc import Collection
from typing import Final

from django.db import connection

CHANNEL: Final = "luminet_usage"
EVERYBODY: Final = "*"
MOST_BYTES: Final = 7_000  # PostgreSQL takes below 8,000


def usage_notify(organisations: Collection[int]) -> None:
    """Within the transaction that writes the numbers: nobody hears of what is rolled back."""
    if not organisations:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, payload(organisations)])


def payload(organisations: Collection[int]) -> str:
    told = ",".join(map(str, sorted(organisations)))
    return told if len(told) <= MOST_BYTES else EVERYBODY


def payload_read(told: str) -> frozenset[int] | None:
    """The organisations named; None: everybody."""
    return None if told == EVERYBODY else frozenset(int(one) for one in told.split(",") if one.isdecimal())
