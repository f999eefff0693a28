"""Several cases that each meet the same rows."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction


@contextmanager
def undone() -> Iterator[None]:
    """Roll back what is written inside, whatever happens."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
