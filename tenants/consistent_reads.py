"""Read several things as of one moment, while others write."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def consistent_read() -> Iterator[None]:
    """Run all queries of the block on one database snapshot.

    Inside another transaction, its isolation level applies.
    """
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            # These queries read few rows, whatever the planner estimates: JIT compilation would take longer than
            # reading.
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL jit = off")
        yield
