"""A request repeated with its key is answered again, not done again.

The key is taken and the answer kept in the transaction of the deed itself: there is no moment in which one exists
without the other, and of two at once the second waits for the first and then reads its answer.

What is kept holds no secret that is shown once: whoever repeats a request is told that it was done, not the secret.
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
KEPT_BYTES = 8 * 1024 * 1024  # what the largest document we take can make of an answer: two short lines a namespace
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What a repeated request is answered: the first answer, letter by letter, without secrets that are shown once."""

    status: int
    body: str = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)


def once(
    *, actor: Actor, key: str, fingerprint: bytes, now: datetime, perform: Callable[[], tuple[Answer, KeptAnswer]]
) -> Answer | KeptAnswer:
    """The answer that `perform` gives first, or what it kept then. What fails is not kept: it has changed nothing."""
    with audited():
        request, is_new = _taken(actor, key, fingerprint, now)
        place = answer_place(request.caller, key)
        if not is_new:
            return _opened(request.sealed_answer, place)
        answer, kept = perform()
        said = json.dumps(asdict(kept)).encode()
        request.status = kept.status
        request.sealed_answer = seal(said, place=place) if len(said) <= KEPT_BYTES else None
        request.save(update_fields=["status", "sealed_answer"])
    return answer


def _opened(sealed: bytes | memoryview | None, place: str) -> KeptAnswer:
    if sealed is None:
        raise AnswerNotKept
    return KeptAnswer(**json.loads(unseal(sealed, place=place)))


def asked(*, actor: Actor, key: str, fingerprint: bytes, now: datetime, perform: Callable[[], Answer]) -> Answer:
    """For what changes nothing: the key stands for this question, and whoever repeats it is answered anew. Keeping
    the answer would only cost room, and it would be stale."""
    with audited():
        _taken(actor, key, fingerprint, now)
        return perform()


def _taken(actor: Actor, key: str, fingerprint: bytes, now: datetime) -> tuple[IdempotentRequest, bool]:
    """The request this key stands for, and whether that is this one, for the first time."""
    caller = f"{actor.kind}:{actor.id}"
    IdempotentRequest.objects.filter(caller=caller, key=key, created_at__lt=now - ANSWERS_KEPT).delete()
    try:
        with transaction.atomic():  # waits here for a twin that has not committed yet
            made = IdempotentRequest.objects.create(caller=caller, key=key, fingerprint=fingerprint, created_at=now)
            return made, True
    except IntegrityError:
        found = IdempotentRequest.objects.get(caller=caller, key=key)
    if not hmac.compare_digest(bytes(found.fingerprint), fingerprint):
        raise IdempotencyKeyReused
    return found, False


def answer_place(caller: str, key: str) -> str:
    return f"answer to {caller} {key}"
