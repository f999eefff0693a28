"""Permission to delete published revisions for one transaction; otherwise the database refuses it."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def removing() -> Iterator[None]:
    """Allow deletion of revisions. Use it only to delete a removed organisation or namespace as a whole."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('luminet.removing', 'yes', true)")
        try:
            yield
        finally:
            if not connection.needs_rollback:
                cursor.execute("SELECT set_config('luminet.removing', '', true)")
