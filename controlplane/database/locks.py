"""Advisory locks of a session, which outlive its transactions."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error, connection


@contextmanager
def alone(lock: int) -> Iterator[bool]:
    """Take the lock if it is free and release it at the end. Yield whether it was free."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [lock])
        is_alone = cursor.fetchone() == (True,)
    try:
        yield is_alone
    finally:
        if is_alone:
            advisory_unlock(lock)


def advisory_unlock(lock: int) -> None:
    """Release the lock. A connection that cannot is closed, because the pool would reuse it with the lock."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [lock])
    except Error:
        if connection.connection is not None:
            connection.connection.close()
        connection.close()
