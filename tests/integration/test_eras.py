"""What a database that was brought back does before anybody is served by it, and what ends again by a newer trail."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from controlplane.backups.endings import Endings, endings_carry_out, endings_read
from controlplane.backups.era import era_begin
from controlplane.backups.errors import BackupProblem
from controlplane.fleet.agents import agent_revoke
from controlplane.fleet.models import Agent, JoinToken
from tenants.actor import SYSTEM
from tenants.audit import audit_lines, audit_verify
from tenants.models import ApiKey, Namespace, NamespaceKey, OneTimeLink, Organisation, User
from tenants.services.eras import era_epoch
from tenants.services.keys import key_revoke
from tenants.services.members import member_invite, member_remove
from tenants.services.namespace_keys import key_open
from tenants.services.operations import purge
from tenants.services.organisations import organisation_update
from tenants.services.people import password_change
from tests.database.factories import PASSWORD, make_agent, make_join_token, make_user
from tests.web.api import make_key, make_organisation

pytestmark = pytest.mark.django_db


class _Undo(Exception):
    pass


def lost(do: Callable[[], None]) -> list[str]:
    """The trail with what was done, which the database then has not: a backup of before was brought back."""
    lines: list[str] = []
    try:
        with transaction.atomic():
            do()
            lines = list(audit_lines())
            raise _Undo
    except _Undo:
        return lines


def carried_out(lines: list[str]) -> Endings:
    return endings_carry_out(endings_read(lines))


def test_every_namespace_gets_an_epoch_and_a_key_that_nobody_held() -> None:
    acme = make_organisation("acme", "chat")
    purge(actor=SYSTEM, organisation=acme)
    before = keys_now()
    now = timezone.now()
    assert era_begin(now=now).namespaces == 2
    assert {one.epoch for one in Namespace.objects.all()} == {era_epoch(now)}
    after = keys_now()
    assert after.keys() == before.keys()
    assert not {*after.values()} & {*before.values()}


def keys_now() -> dict[int, bytes]:
    found = NamespaceKey.objects.filter(retired_at=None)
    return {one.namespace_id: key_open(one.namespace_id, one.epoch, one.sealed or b"") for one in found}


def test_two_eras_of_one_backup_never_share_an_epoch_or_an_id() -> None:
    acme, now = make_organisation("acme"), timezone.now()
    namespace = acme.namespaces.get()
    epochs, ids = [], []
    for later in (timedelta(0), timedelta(minutes=1)):
        with transaction.atomic():
            era_begin(now=now + later)
            namespace.refresh_from_db()
            epochs.append(namespace.epoch)
            ids.append(make_organisation("bolt").pk)
            transaction.set_rollback(True)
    assert epochs[0] < epochs[1]
    assert acme.pk + 1 < ids[0] < ids[1]


def test_an_epoch_above_the_clocks_still_goes_up() -> None:
    namespace, now = make_organisation("acme").namespaces.get(), timezone.now()
    Namespace.objects.update(epoch=era_epoch(now) + 7)
    NamespaceKey.objects.update(retired_at=now, sealed=None)
    era_begin(now=now)
    namespace.refresh_from_db()
    assert namespace.epoch == era_epoch(now) + 8


def test_what_lets_somebody_in_once_lets_nobody_in_any_more() -> None:
    acme, now = make_organisation("acme"), timezone.now()
    member_invite(actor=SYSTEM, organisation=acme, email="new@acme.example", role="viewer")
    make_join_token()
    era = era_begin(now=now)
    assert (era.links, era.join_tokens) == (1, 1)
    assert not OneTimeLink.objects.exists()
    assert not JoinToken.objects.filter(revoked_at=None).exists()


def test_the_trail_goes_on_and_says_what_was_done() -> None:
    make_organisation("acme")
    head = audit_verify().head
    era = era_begin(now=timezone.now())
    assert era.head == head
    verdict = audit_verify(remembered_head=head)
    assert verdict.is_sound
    assert json.loads(list(audit_lines())[-1])["verb"] == "backup.restore"


def test_what_ended_after_the_backup_ends_again() -> None:
    acme = make_organisation("acme")
    make_key(acme, "infer")
    key, user = ApiKey.objects.get(), make_user()
    member_invite(actor=SYSTEM, organisation=acme, email=user.email, role="viewer")
    make_agent("agent-1")

    def ends() -> None:
        key_revoke(actor=SYSTEM, key=key)
        member_remove(actor=SYSTEM, member=acme.members.get())
        agent_revoke(actor=SYSTEM, agent=Agent.objects.get())
        password_change(user=user, current=PASSWORD, new="another horse entirely")
        organisation_update(actor=SYSTEM, organisation=acme, expected=None, state="suspended")
        make_organisation("bolt")

    endings = carried_out(lost(ends))
    assert endings.failed == []
    assert dict(endings.carried_out) == {
        "key.revoke": 1,
        "member.remove": 1,
        "agent.revoke": 1,
        "password.change": 1,
        "organisation.update": 1,
    }
    assert endings.left["organisation.create"] == 1
    assert ApiKey.objects.get().revoked_at is not None
    assert not acme.members.exists()
    assert Agent.objects.get().revoked_at is not None
    assert not User.objects.get().has_usable_password()
    assert Organisation.objects.get().state == "suspended"


def test_a_copy_of_the_trail_that_was_changed_ends_nothing() -> None:
    acme = make_organisation("acme")
    make_key(acme, "infer")
    key = ApiKey.objects.get()
    lines = lost(lambda: key_revoke(actor=SYSTEM, key=key))
    lines[-1] = lines[-1].replace(str(key.pk), "00000000-0000-4000-8000-000000000000")
    with pytest.raises(BackupProblem, match=r"record \d+ of the copy was changed"):
        endings_read(lines)


def test_a_copy_of_the_trail_with_a_gap_or_of_another_is_refused() -> None:
    acme = make_organisation("acme")

    def keys_made() -> None:
        for _ in range(3):
            make_key(acme, "infer")

    lines = lost(keys_made)
    with pytest.raises(BackupProblem, match=r"expected record \d+, found \d+"):
        endings_read([*lines[:-2], lines[-1]])
    head = json.loads(lines[-4])
    with pytest.raises(BackupProblem, match="it is of another trail"):
        endings_read([json.dumps(head | {"hash": "00" * 32})])
    with pytest.raises(BackupProblem, match="line 1 of the copy is no record"):
        endings_read(["no JSON"])


def test_an_older_copy_of_the_trail_has_nothing_to_say() -> None:
    make_organisation("acme")
    lines = list(audit_lines())
    make_organisation("bolt")
    assert endings_read(lines) == []
