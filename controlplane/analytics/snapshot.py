"""Reading several things as they were at one moment, while ingest and rolling go on."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def snapshot() -> Iterator[None]:
    """Within a transaction that is there already, whoever began it has decided what it sees."""
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            # What is read is little, whatever the planner makes of it: compiling would take longer than reading.
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL jit = off")
        yield
