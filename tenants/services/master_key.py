"""Rotation of the master key: reseal all values in small transactions that may be repeated."""

from collections.abc import Callable, Iterator
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from tenants import hooks
from tenants.crypto import is_sealed_anew, seal, unseal
from tenants.models import IdempotentRequest, NamespaceKey, Pin
from tenants.services.idempotency import answer_place
from tenants.services.namespace_keys import key_place
from tenants.services.pins import pin_place

BATCH = 500


def master_key_rotate() -> int:
    """Reseal all values and return how many. If interrupted, run it again."""
    return (
        _reseal(
            NamespaceKey.objects.filter(retired_at=None), "sealed", lambda key: key_place(key.namespace_id, key.epoch)
        )
        + _reseal(Pin.objects.all(), "sealed_content", pin_place)
        + _reseal(
            IdempotentRequest.objects.exclude(sealed_answer=None),
            "sealed_answer",
            lambda request: answer_place(request.caller, request.key),
        )
        + sum(_reseal(*find()) for find in hooks.sealed)
    )


def _reseal(rows: "QuerySet[Any]", field: str, row_name: Callable[[Any], str]) -> int:
    done = 0
    for ids in _batches(rows):
        with transaction.atomic():
            outdated = [
                row
                for row in rows.select_for_update().filter(pk__in=ids).order_by("pk")
                if not is_sealed_anew(getattr(row, field))
            ]
            for row in outdated:
                setattr(row, field, seal(unseal(getattr(row, field), place=row_name(row)), place=row_name(row)))
            rows.model.objects.bulk_update(outdated, [field])
            done += len(outdated)
    return done


def _batches(rows: "QuerySet[Any]") -> Iterator[list[Any]]:
    ids = list(rows.order_by("pk").values_list("pk", flat=True))
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]
