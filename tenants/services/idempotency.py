"""Idempotency keys: a repeated request gets the stored answer and is not carried out again.

The key and the answer are stored in the transaction of the action itself, so neither exists without the other. Of two
simultaneous requests, the second waits for the first and then reads its answer. Stored answers omit secrets that are
shown once: a repeated request learns that it was carried out, not the secret.
"""

import hmac
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from django.db import IntegrityError, transaction

from tenants.actor import Actor
from tenants.audit import audited
from tenants.crypto import seal, unseal
from tenants.errors import AnswerNotKept, IdempotencyKeyReused
from tenants.models import IdempotentRequest

ANSWERS_KEPT = timedelta(hours=24)
KEPT_BYTES = 8 * 1024 * 1024  # size of the answer to the largest accepted document: two short lines for each namespace
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The answer to a repeated request: the first answer, byte for byte, without secrets that are shown once."""

    status: int
    body: str = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)


def once(
    *, actor: Actor, key: str, fingerprint: bytes, now: datetime, perform: Callable[[], tuple[Answer, KeptAnswer]]
) -> Answer | KeptAnswer:
    """Return the answer of `perform`, or the stored one. A failure is not stored, because it changed nothing."""
    with audited():
        request, is_new = _taken(actor, key, fingerprint, now)
        row_name = answer_place(request.caller, key)
        if not is_new:
            return _opened(request.sealed_answer, row_name)
        answer, kept_answer = perform()
        encoded = json.dumps(asdict(kept_answer)).encode()
        request.status = kept_answer.status
        request.sealed_answer = seal(encoded, place=row_name) if len(encoded) <= KEPT_BYTES else None
        request.save(update_fields=["status", "sealed_answer"])
    return answer


def _opened(sealed: bytes | memoryview | None, row_name: str) -> KeptAnswer:
    if sealed is None:
        raise AnswerNotKept
    return KeptAnswer(**json.loads(unseal(sealed, place=row_name)))


def asked(*, actor: Actor, key: str, fingerprint: bytes, now: datetime, perform: Callable[[], Answer]) -> Answer:
    """Perform a request that changes nothing, again each time it is repeated.

    Its answer is not stored, which would take room and be stale; the key is only bound to the request.
    """
    with audited():
        _taken(actor, key, fingerprint, now)
        return perform()


def _taken(actor: Actor, key: str, fingerprint: bytes, now: datetime) -> tuple[IdempotentRequest, bool]:
    """Return the request bound to this key, and whether it is new."""
    caller = f"{actor.kind}:{actor.id}"
    IdempotentRequest.objects.filter(caller=caller, key=key, created_at__lt=now - ANSWERS_KEPT).delete()
    try:
        with transaction.atomic():  # waits here for a simultaneous request with the same key
            created = IdempotentRequest.objects.create(caller=caller, key=key, fingerprint=fingerprint, created_at=now)
            return created, True
    except IntegrityError:
        request = IdempotentRequest.objects.get(caller=caller, key=key)
    if not hmac.compare_digest(bytes(request.fingerprint), fingerprint):
        raise IdempotencyKeyReused
    return request, False


def answer_place(caller: str, key: str) -> str:
    return f"answer to {caller} {key}"
