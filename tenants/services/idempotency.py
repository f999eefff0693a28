"""A request repeated with its key is answered again, not done again.

The key is taken and the answer kept in the transaction of the deed itself: there is no moment in which one exists
without the other, and of two at once the second waits for the first and then reads its answer.
"""

import hmac
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime

from django.db import IntegrityError, transaction

from tenants.actor import Actor
from tenants.audit import audited
from tenants.crypto import seal, unseal
from tenants.errors import IdempotencyKeyReused
from tenants.models import IdempotentRequest
from tenants.services.people import ANSWERS_KEPT


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What was answered: enough to say it again, letter by letter."""

    status: int
    body: str = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)


def once(
    *, actor: Actor, key: str, fingerprint: bytes, now: datetime, perform: Callable[[], KeptAnswer]
) -> tuple[KeptAnswer, bool]:
    """The answer, and whether it is one given before. What fails is not kept: it has changed nothing."""
    caller = f"{actor.kind}:{actor.id}"
    with audited():
        IdempotentRequest.objects.filter(caller=caller, key=key, created_at__lt=now - ANSWERS_KEPT).delete()
        try:
            with transaction.atomic():  # waits here for a twin that has not committed yet
                request = IdempotentRequest.objects.create(
                    caller=caller, key=key, fingerprint=fingerprint, created_at=now
                )
        except IntegrityError:
            return _earlier(caller, key, fingerprint), True
        answer = perform()
        request.status = answer.status
        request.sealed_answer = seal(json.dumps(asdict(answer)).encode(), place=answer_place(caller, key))
        request.save(update_fields=["status", "sealed_answer"])
    return answer, False


def _earlier(caller: str, key: str, fingerprint: bytes) -> KeptAnswer:
    found = IdempotentRequest.objects.get(caller=caller, key=key)
    if not hmac.compare_digest(bytes(found.fingerprint), fingerprint) or found.sealed_answer is None:
        raise IdempotencyKeyReused
    return KeptAnswer(**json.loads(unseal(found.sealed_answer, place=answer_place(caller, key))))


def answer_place(caller: str, key: str) -> str:
    return f"answer to {caller} {key}"
