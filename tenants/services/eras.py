"""A database that was brought back from a backup begins a new era: what was given out since is not given out again.

What the backup does not know may have happened: namespaces were purged, and ids of new ones handed out. So every
namespace gets another epoch with another key, above any that an agent can hold, and new organisations and namespaces
get ids that nobody had. Caches are cold once; purged content stays purged, and nobody is taken for somebody else.
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
EPOCH_SECONDS = 10  # one purge in so many seconds, day and night, would not catch up with an era's epochs
NUMBERED = (Organisation, Namespace)  # whose ids leave the control plane: agents hold them, journals name them


@dataclass(frozen=True, slots=True)
class EraOfTenants:
    namespaces: int  # that have another epoch
    links: int  # that let nobody in any more


def tenants_era_begin(*, now: datetime) -> EraOfTenants:
    """Within the caller's transaction."""
    namespaces = _epochs_raise(now)
    for model in NUMBERED:
        _ids_skip(model._meta.db_table, int(now.timestamp() * 1000))
    links, _ = OneTimeLink.objects.filter(used_at=None).delete()  # they may have been used since
    IdempotentRequest.objects.all().delete()  # an answer kept may be of something that is not there any more
    return EraOfTenants(namespaces, links)


def era_epoch(now: datetime) -> int:
    """By the clock: an era that begins later has higher ones, also where both began with the same backup."""
    return int(now.timestamp()) // EPOCH_SECONDS


def _epochs_raise(now: datetime) -> int:
    living = _living().select_for_update(no_key=True)
    chosen = list(living.order_by("pk"))
    keys_erase(chosen, now=now)
    raised = Greatest(F("epoch") + 1, Value(era_epoch(now)))
    Namespace.objects.filter(pk__in=[one.pk for one in chosen]).update(epoch=raised)
    NamespaceKey.objects.bulk_create(
        (key_new(one, max(one.epoch + 1, era_epoch(now))) for one in chosen), batch_size=BATCH
    )
    return len(chosen)


def _living() -> "QuerySet[Namespace]":
    """Deleted ones have no key: nobody is told of them any more."""
    living = Namespace.objects.filter(deleted_at=None)
    return living.exclude(organisation__state=Organisation.State.DELETED)


def _ids_skip(table: str, above: int) -> None:
    """Milliseconds since 1970: nobody makes a thousand a second for as long as the fleet has been running.

    A restart is undone with its transaction, as `setval` is not: a dry run leaves ids as they were.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [table])
        sequence = sql.SQL(cursor.fetchone()[0])  # quoted by PostgreSQL
        cursor.execute(sql.SQL("SELECT last_value FROM {}").format(sequence))
        beyond = max(cursor.fetchone()[0], above) + 1
        cursor.execute(sql.SQL("ALTER SEQUENCE {} RESTART WITH {}").format(sequence, sql.Literal(beyond)))
