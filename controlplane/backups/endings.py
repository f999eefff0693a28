"""Repeat what ended after the backup was made, from a copy of the audit trail that is newer than the backup.

Only endings are repeated: a revoked key, a removed member or a revoked agent must not come back with the backup. What
was created or changed since is listed, not repeated. Every record of the copy is verified by the hash chain that
continues the backup's own head, so a copy cannot be forged without the signing key.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.backups.errors import BackupProblem
from controlplane.fleet.agents import agent_revoke
from controlplane.fleet.models import Agent
from engine_agent.contracts.protocol import canonical_json
from tenants.actor import SYSTEM
from tenants.audit import GENESIS, Links, audited
from tenants.errors import TenantsError
from tenants.models import ApiKey, AuditHead, AuditRecord, Member, Namespace, OperatorToken, Organisation, User
from tenants.services.keys import key_revoke, operator_token_revoke
from tenants.services.members import member_remove
from tenants.services.namespaces import namespace_delete
from tenants.services.organisations import organisation_delete, organisation_update
from tenants.services.people import account_close

VERB = "backup.endings"
Line = Mapping[str, Any]


@dataclass(slots=True)
class Endings:
    """The number of endings by verb. `failed` names those that could not be carried out."""

    carried_out: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {"carried_out": dict(self.carried_out), "left": dict(self.left), "failed": self.failed}


def endings_read(lines: Iterable[str]) -> list[Line]:
    """Return the copy's records after the backup's last one, all verified. Raise BackupProblem if one does not fit.
    Call it before the epoch reset, which adds to the trail."""
    head = AuditHead.objects.filter(pk=1).first()
    seq, last = (head.seq, bytes(head.hash)) if head else (0, GENESIS)
    ending_lines: list[Line] = []
    links = Links()
    for number, record in _records(lines):
        if record.seq < seq:
            continue
        if record.seq == seq and not ending_lines:
            if bytes(record.hash) != last:
                raise BackupProblem(f"record {seq} of the copy is another than the backup's: it is of another trail")
            continue
        if record.seq != seq + 1:
            raise BackupProblem(f"line {number} of the copy: expected record {seq + 1}, found {record.seq}")
        if not links.fits(last, record):
            raise BackupProblem(f"record {record.seq} of the copy was changed, or is of another trail or signing key")
        seq, last = record.seq, bytes(record.hash)
        ending_lines.append(_line(record))
    return ending_lines


def endings_carry_out(lines: Iterable[Line]) -> Endings:
    endings = Endings()
    for line in lines:
        end = ENDINGS.get(line["verb"])
        if end is None:
            endings.left[line["verb"]] += 1
            continue
        try:
            with audited():
                ended = end(line)
        except TenantsError as problem:
            endings.failed.append(f"record {line['seq']}, {line['verb']} {line['target']}: {problem}")
            continue
        (endings.carried_out if ended else endings.left)[line["verb"]] += 1
    with audited() as journal:
        journal.record(SYSTEM, VERB, "the fleet", after={**endings.as_json(), "failed": len(endings.failed)})
    return endings


def _records(lines: Iterable[str]) -> Iterator[tuple[int, AuditRecord]]:
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            yield number, _record(json.loads(line))
    except UnicodeDecodeError:
        raise BackupProblem(f"what comes behind line {number} of the copy is no text") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise BackupProblem(f"line {number} of the copy is no record of an audit trail: {problem}") from None


def _record(fields: Mapping[str, Any]) -> AuditRecord:
    """Return a record from its form in `luminet audit export`."""
    actor = fields["actor"]
    return AuditRecord(
        seq=int(fields["seq"]),
        at=datetime.fromisoformat(fields["at"]),
        actor_kind=actor["kind"],
        actor_id=actor["id"],
        actor_name=actor["name"],
        organisation_id=fields["organisation_id"],
        verb=fields["verb"],
        target=fields["target"],
        before=canonical_json(fields["before"]).decode(),
        after=canonical_json(fields["after"]).decode(),
        address=fields["address"] or "",
        request_id=fields["request_id"] or "",
        hash=bytes.fromhex(fields["hash"]),
    )


def _line(record: AuditRecord) -> Line:
    return {
        "seq": record.seq,
        "verb": record.verb,
        "target": record.target,
        "organisation": record.organisation_id,
        "before": json.loads(record.before) or {},
        "after": json.loads(record.after) or {},
    }


# Each of these returns whether there was something to end.


def _key(line: Line) -> bool:
    key = ApiKey.objects.select_related("organisation").filter(pk=line["before"]["id"], revoked_at=None).first()
    if key is not None:
        key_revoke(actor=SYSTEM, key=key)
    return key is not None


def _operator_token(line: Line) -> bool:
    token = OperatorToken.objects.filter(pk=line["before"]["id"], revoked_at=None).first()
    if token is not None:
        operator_token_revoke(actor=SYSTEM, token=token)
    return token is not None


def _member(line: Line) -> bool:
    members = Member.objects.select_related("organisation").filter(organisation=line["organisation"])
    member = members.filter(email=line["before"]["email"]).first()
    if member is not None:
        member_remove(actor=SYSTEM, member=member)
    return member is not None


def _agent(line: Line) -> bool:
    agent = Agent.objects.filter(pk=line["target"].removeprefix("agent "), revoked_at=None).first()
    if agent is not None:
        agent_revoke(actor=SYSTEM, agent=agent)
    return agent is not None


def _organisation_suspended(line: Line) -> bool:
    """Suspend or reactivate the organisation as the record says; the last of several records counts."""
    state = line["after"].get("state")
    organisation = (
        Organisation.objects.filter(pk=line["organisation"]).exclude(state=Organisation.State.DELETED).first()
    )
    if organisation is None or state == organisation.state or state not in ("active", "suspended"):
        return False
    organisation_update(actor=SYSTEM, organisation=organisation, expected=None, state=state)
    return True


def _organisation(line: Line) -> bool:
    organisation = (
        Organisation.objects.filter(pk=line["organisation"]).exclude(state=Organisation.State.DELETED).first()
    )
    if organisation is not None:
        organisation_delete(actor=SYSTEM, organisation=organisation, expected=None)
    return organisation is not None


def _namespace(line: Line) -> bool:
    living_namespaces = Namespace.objects.select_related("organisation").filter(organisation=line["organisation"])
    namespace = living_namespaces.filter(slug=line["before"].get("slug"), deleted_at=None).first()
    if namespace is not None:
        namespace_delete(actor=SYSTEM, namespace=namespace, expected=None)
    return namespace is not None


def _password(line: Line) -> bool:
    """Make the old password unusable: it would let someone in again. The user needs a `luminet reset-link`."""
    user = User.objects.filter(email=line["target"]).first()
    if user is not None:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    return user is not None


def _account(line: Line) -> bool:
    user = User.objects.filter(email=line["target"], is_active=True).first()
    if user is not None:
        account_close(actor=SYSTEM, user=user)
    return user is not None


ENDINGS: Mapping[str, Callable[[Line], bool]] = {
    "account.close": _account,
    "agent.revoke": _agent,
    "key.revoke": _key,
    "member.remove": _member,
    "namespace.delete": _namespace,
    "operator-token.revoke": _operator_token,
    "organisation.delete": _organisation,
    "organisation.update": _organisation_suspended,
    "password.change": _password,
    "password.reset": _password,
}
