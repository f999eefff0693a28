"""The epoch reset of a restored database, in one transaction, before anyone is served from it. A service."""

from dataclasses import asdict, dataclass
from datetime import datetime

from django.contrib.sessions.models import Session
from django.db.models import Q

from controlplane.fleet.join_tokens import STANDING_NAME
from controlplane.fleet.models import JoinToken
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.services import rollout_pause
from tenants.actor import SYSTEM
from tenants.audit import GENESIS, RESTORED, audited, head_text
from tenants.models import AuditHead, AuditRecord
from tenants.services.eras import tenants_era_begin

WHY_PAUSED = "The database was brought back from a backup: look whether it had gone further, and resume or abort it."


@dataclass(frozen=True, slots=True)
class Era:
    began_at: str
    backup_until: str | None  # time of the last audit record in the backup
    head: str  # head of the backup's audit trail
    namespaces: int
    links: int
    join_tokens: int
    rollouts: int


def era_begin(*, now: datetime) -> Era:
    with audited() as journal:
        head, until = _trail_end()
        tenants = tenants_era_begin(now=now)
        Session.objects.all().delete()
        era = Era(
            began_at=now.isoformat(),
            backup_until=until,
            head=head,
            namespaces=tenants.namespaces,
            links=tenants.links,
            join_tokens=_join_tokens_end(now),
            rollouts=_rollouts_pause(),
        )
        journal.record(SYSTEM, RESTORED, "the fleet", after=asdict(era))
    return era


def _trail_end() -> tuple[str, str | None]:
    head = AuditHead.objects.filter(pk=1).first()
    if head is None:
        return head_text(0, GENESIS), None
    at = AuditRecord.objects.filter(seq=head.seq).values_list("at", flat=True).first()
    return head_text(head.seq, bytes(head.hash)), None if at is None else at.isoformat()


def _join_tokens_end(now: datetime) -> int:
    """Revoke the open join tokens: a used or revoked one would be valid again. The environment's own stays."""
    open_tokens = JoinToken.objects.filter(revoked_at=None).filter(Q(expires_at=None) | Q(expires_at__gt=now))
    return open_tokens.exclude(name=STANDING_NAME, created_by=SYSTEM.name).update(revoked_at=now)


def _rollouts_pause() -> int:
    """Pause the running rollouts: their real progress is unknown, so an operator decides whether to resume."""
    running = list(Rollout.objects.filter(state=Rollout.State.RUNNING, strategy="canary"))
    for rollout in running:
        rollout_pause(actor=SYSTEM, rollout=rollout, why=WHY_PAUSED)
    return len(running)
