"""The secret at the root of a namespace's hash chains: created for each epoch, sealed, erased when it ends."""

import os
from collections.abc import Collection
from datetime import datetime

from django.db.models import QuerySet

from tenants.crypto import seal, unseal
from tenants.models import Namespace, NamespaceKey

KEY_BYTES = 32


def key_new(namespace: Namespace, epoch: int) -> NamespaceKey:
    sealed = seal(os.urandom(KEY_BYTES), place=key_place(namespace.pk, epoch))
    return NamespaceKey(namespace=namespace, epoch=epoch, sealed=sealed)


def key_open(namespace_id: int, epoch: int, sealed: bytes | memoryview) -> bytes:
    return unseal(sealed, place=key_place(namespace_id, epoch))


def keys_erase(namespaces: "Collection[Namespace] | QuerySet[Namespace]", *, now: datetime) -> None:
    """Erase keys. Blocks cached under them can no longer be addressed, even if an agent still has them."""
    NamespaceKey.objects.filter(namespace__in=namespaces, retired_at=None).update(sealed=None, retired_at=now)


def key_place(namespace_id: int, epoch: int) -> str:
    return f"namespace key {namespace_id} epoch {epoch}"
