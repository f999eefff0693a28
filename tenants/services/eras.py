"""The epoch reset after a database is restored from a backup: epochs and ids are not issued a second time.

The backup may lack purges and new ids. So every namespace gets a new key and an epoch above any that an agent can have,
and new organisations and namespaces get ids never used before. Caches start cold once; purged content stays purged, and
no organisation is mistaken for another.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.db.models import F, QuerySet, Value
from django.db.models.functions import Greatest
from psycopg import sql

from tenants.models import IdempotentRequest, Namespace, NamespaceKey, OneTimeLink, Organisation
from tenants.services.namespace_keys import key_new, keys_erase

BATCH = 5_000
EPOCH_SECONDS = 10  # even one purge in so many seconds, day and night, would not overtake the epochs of a reset
NUMBERED = (Organisation, Namespace)  # their ids leave the control plane: agents apply them, journals contain them


@dataclass(frozen=True, slots=True)
class EraOfTenants:
    namespaces: int  # with a new epoch
    links: int  # that no longer work


def tenants_era_begin(*, now: datetime) -> EraOfTenants:
    """Reset epochs, ids and links within the caller's transaction."""
    namespaces = _epochs_raise(now)
    for model in NUMBERED:
        _ids_skip(model._meta.db_table, int(now.timestamp() * 1000))
    links, _ = OneTimeLink.objects.filter(used_at=None).delete()  # they may have been used since the backup
    IdempotentRequest.objects.all().delete()  # a stored answer may name objects that no longer exist
    return EraOfTenants(namespaces, links)


def era_epoch(now: datetime) -> int:
    """Return the lowest new epoch of a reset.

    It comes from the clock, so a later reset has higher ones, even from the same backup.
    """
    return int(now.timestamp()) // EPOCH_SECONDS


def _epochs_raise(now: datetime) -> int:
    existing = _living().select_for_update(no_key=True)
    namespaces = list(existing.order_by("pk"))
    keys_erase(namespaces, now=now)
    raised = Greatest(F("epoch") + 1, Value(era_epoch(now)))
    Namespace.objects.filter(pk__in=[namespace.pk for namespace in namespaces]).update(epoch=raised)
    NamespaceKey.objects.bulk_create(
        (key_new(namespace, max(namespace.epoch + 1, era_epoch(now))) for namespace in namespaces), batch_size=BATCH
    )
    return len(namespaces)


def _living() -> "QuerySet[Namespace]":
    """Return the existing namespaces. Deleted ones have no key and are in no snapshot."""
    existing = Namespace.objects.filter(deleted_at=None)
    return existing.exclude(organisation__state=Organisation.State.DELETED)


def _ids_skip(table: str, above: int) -> None:
    """Restart a table's ids above `above`, milliseconds since 1970, which exceed any id in use.

    No fleet creates a thousand objects a second throughout its life. Unlike `setval`, the restart is rolled back with
    its transaction, so a dry run changes no ids.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [table])
        sequence = sql.SQL(cursor.fetchone()[0])  # quoted by PostgreSQL
        cursor.execute(sql.SQL("SELECT last_value FROM {}").format(sequence))
        restart = max(cursor.fetchone()[0], above) + 1
        cursor.execute(sql.SQL("ALTER SEQUENCE {} RESTART WITH {}").format(sequence, sql.Literal(restart)))
