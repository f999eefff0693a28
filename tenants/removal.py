"""Leave to delete published revisions, for one transaction: the database refuses it to everybody else."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def removing() -> Iterator[None]:
    """Only what belongs to a removed organisation or namespace goes, and it goes whole."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('luminet.removing', 'yes', true)")
        try:
            yield
        finally:
            if not connection.needs_rollback:
                cursor.execute("SELECT set_config('luminet.removing', '', true)")
