"""API keys and operator tokens: what they may do, and when they stop. Who may ask what is test_access_matrix.py."""

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tenants.access import actor_for_token, namespaces_visible
from tenants.actor import SYSTEM, Actor, Scope
from tenants.crypto import secret_hash
from tenants.errors import InvalidFields, InvalidToken, LimitReached
from tenants.limits import Limits
from tenants.models import ApiKey, AuditRecord, OperatorToken, Organisation, User
from tenants.services.keys import key_create, key_revoke, operator_token_create, operator_token_revoke
from tenants.services.namespaces import namespace_delete
from tenants.services.organisations import limits_put, organisation_update, remains_remove
from tests.database.factories import actor_of, make_namespace, make_operator
from tests.support.threads import at_once, failures
from tests.web.api import Api, make_key, make_operator_token, make_organisation, said

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def actor_at(secret: str, now: datetime) -> Actor:
    return actor_for_token(secret, now=now, address="192.0.2.7", request_id="r")


def used(secret: str) -> datetime | None:
    return ApiKey.objects.get(hash=secret_hash(secret)).last_used_at


# What they are


def test_a_key_speaks_for_its_organisation_with_its_scopes() -> None:
    made = make_organisation()
    actor = actor_of(make_key(made, "policy:write", "infer"))
    assert (actor.kind, actor.organisation_id, actor.namespace_ids) == ("key", made.pk, None)
    assert actor.scopes == {Scope.POLICY_WRITE, Scope.POLICY_READ, Scope.INFER}
    assert (actor.is_operator, actor.address, actor.request_id) == (False, "192.0.2.7", "request-1")


def test_admin_includes_every_rest_scope_and_not_inference() -> None:
    actor = actor_of(make_key(make_organisation(), "admin"))
    assert actor.scopes == {Scope.ADMIN, Scope.STATS_READ, Scope.POLICY_READ, Scope.POLICY_WRITE}


def test_of_a_secret_nothing_but_its_beginning_and_its_hash_is_kept() -> None:
    secret = make_key(make_organisation())
    row = repr(ApiKey.objects.values_list().get())
    assert secret[:12] in row
    assert secret[12:] not in row


def test_a_secret_is_shown_once(acme: Api) -> None:
    made = said(acme.post("/orgs/acme/keys", {"name": "ci", "scopes": ["infer"]}))
    assert made["secret"].startswith(made["prefix"])
    listed = said(acme.get("/orgs/acme/keys"))["items"]
    assert {**made, "secret": None} in [{**one, "secret": None} for one in listed]
    assert made["secret"] not in repr(listed)


def test_an_operators_token_speaks_for_the_fleet_and_never_infers() -> None:
    operator = make_operator()
    actor = actor_of(make_operator_token(operator, "admin"))
    assert (actor.is_operator, actor.name, actor.organisation_id) == (True, "operator@luminet.example (test)", None)
    with pytest.raises(InvalidFields, match="cannot have infer"):
        make_operator_token(operator, "infer")


# What is refused when they are made


def test_a_key_needs_a_scope_a_name_and_a_future() -> None:
    made = make_organisation()
    for scopes, name, expires_at in (([], "x", None), (["infer"], " ", None), (["infer"], "x", NOW - timedelta(1))):
        with pytest.raises(InvalidFields):
            key_create(actor=SYSTEM, organisation=made, name=name, scopes=scopes, expires_at=expires_at)
    assert not ApiKey.objects.exists()


def test_all_that_is_wrong_is_named() -> None:
    with pytest.raises(InvalidFields) as caught:
        key_create(actor=SYSTEM, organisation=make_organisation(), name="x", scopes=[], expires_at=NOW - timedelta(1))
    assert [one.field for one in caught.value.problems] == ["scopes", "expires_at"]


def test_a_bound_key_cannot_have_admin() -> None:
    made = make_organisation()
    with pytest.raises(InvalidFields, match="cannot have admin"):
        make_key(made, "admin", namespaces=[made.namespaces.get()])


def test_a_key_is_bound_to_its_own_organisations_namespaces_alone(acme: Api) -> None:
    make_organisation("globex", "theirs")
    body = {"name": "x", "scopes": ["infer"], "namespaces": ["default", "theirs"]}
    answer = acme.post("/orgs/acme/keys", body)
    assert (answer.status_code, said(answer)["errors"]) == (
        422,
        [{"field": "namespaces", "message": "there is no namespace theirs"}],
    )


def test_an_organisation_has_as_many_keys_as_its_limit_and_revoked_ones_do_not_count() -> None:
    made = make_organisation()
    limits_put(actor=SYSTEM, organisation=made, limits=Limits(max_keys=1), expected=None)
    make_key(made)
    with pytest.raises(LimitReached):
        make_key(made)
    key_revoke(actor=SYSTEM, key=ApiKey.objects.get())
    make_key(made)


@pytest.mark.django_db(transaction=True)
def test_the_limit_holds_for_keys_made_at_once() -> None:
    made = make_organisation()
    limits_put(actor=SYSTEM, organisation=made, limits=Limits(max_keys=2), expected=None)
    outcomes = at_once(*[lambda: make_key(made)] * 5)
    assert (failures(outcomes), ApiKey.objects.count()) == (["LimitReached"] * 3, 2)


# When they stop


def test_a_revoked_key_stops_at_once_and_is_revoked_once() -> None:
    secret = make_key(make_organisation())
    key = ApiKey.objects.select_related("organisation").get()
    for _ in range(2):
        key_revoke(actor=SYSTEM, key=key)
    with pytest.raises(InvalidToken):
        actor_of(secret)
    assert AuditRecord.objects.filter(verb="key.revoke").count() == 1


def test_an_expired_key_stops_at_its_moment() -> None:
    expires_at = timezone.now() + timedelta(hours=1)
    made = make_organisation()
    _, secret = key_create(actor=SYSTEM, organisation=made, name="x", scopes=["infer"], expires_at=expires_at)
    actor_at(secret.secret, expires_at - timedelta(microseconds=1))
    with pytest.raises(InvalidToken):
        actor_at(secret.secret, expires_at)


def test_a_suspended_organisations_key_still_reads() -> None:
    made = make_organisation()
    secret = make_key(made)
    organisation_update(actor=SYSTEM, organisation=made, expected=None, state="suspended")
    assert actor_of(secret).organisation_id == made.pk
    assert Api(secret, Client()).get("/orgs/acme/policy").status_code == 200
    assert Api(secret, Client()).post("/orgs/acme/purge").status_code == 403


@pytest.mark.parametrize("change", [{"is_active": False}, {"is_operator": False}])
def test_the_token_of_who_is_no_operator_any_more_stops(change: dict[str, bool]) -> None:
    secret = make_operator_token(make_operator())
    User.objects.update(**change)
    with pytest.raises(InvalidToken):
        actor_of(secret)


def test_a_revoked_operator_token_stops() -> None:
    secret = make_operator_token(make_operator())
    operator_token_revoke(actor=SYSTEM, token=OperatorToken.objects.get())
    with pytest.raises(InvalidToken):
        actor_of(secret)


def test_an_operator_token_expires() -> None:
    expires_at = timezone.now() + timedelta(hours=1)
    _, secret = operator_token_create(
        actor=SYSTEM, user=make_operator(), name="x", scopes=["admin"], expires_at=expires_at
    )
    with pytest.raises(InvalidToken):
        actor_at(secret.secret, expires_at)


def test_a_bound_key_never_widens() -> None:
    made = make_organisation()
    chat = make_namespace(made)
    secret = make_key(made, "policy:read", namespaces=[chat])
    assert list(namespaces_visible(actor_of(secret), made)) == [chat]
    namespace_delete(actor=SYSTEM, namespace=chat, expected=None)
    assert list(namespaces_visible(actor_of(secret), made)) == []
    remains_remove()
    make_namespace(made)  # of the same slug, and yet another one
    assert list(namespaces_visible(actor_of(secret), made)) == []


def test_a_key_bound_to_nothing_sees_nothing() -> None:
    made = make_organisation()
    secret = make_key(made, "policy:read", namespaces=[])
    assert list(namespaces_visible(actor_of(secret), made)) == []


# Recognised


def test_a_typing_error_costs_no_query() -> None:
    secret = make_key(make_organisation())
    typed = secret[:-1] + ("a" if secret[-1] != "a" else "b")
    with CaptureQueriesContext(connection) as queries:
        for wrong in (typed, "", "lmk_", "lmo_" + secret[4:], secret + "x", secret.upper(), "é" * 53):
            with pytest.raises(InvalidToken):
                actor_of(wrong)
    assert len(queries) == 0


def test_an_unknown_a_revoked_and_an_expired_key_are_told_alike() -> None:
    made = make_organisation()
    revoked, expired = make_key(made), make_key(made)
    ApiKey.objects.filter(hash=secret_hash(revoked)).update(revoked_at=NOW)
    ApiKey.objects.filter(hash=secret_hash(expired)).update(expires_at=NOW)
    told = {Api(token, Client()).get("/orgs").content.decode()[:200] for token in ("lmk_x", revoked, expired)}
    assert len(told) == 1


def test_its_last_use_is_written_once_a_minute() -> None:
    secret, first = make_key(make_organisation()), timezone.now()
    actor_at(secret, first)
    actor_at(secret, first + timedelta(seconds=59))
    assert used(secret) == first
    actor_at(secret, first + timedelta(seconds=60))
    assert used(secret) == first + timedelta(seconds=60)


def test_a_request_within_the_minute_writes_nothing() -> None:
    secret = make_key(make_organisation())
    actor_at(secret, NOW)
    with CaptureQueriesContext(connection) as queries:
        actor_at(secret, NOW + timedelta(seconds=1))
    assert [one["sql"].split()[0] for one in queries] == ["SELECT"]


def test_a_record_names_the_key_and_not_its_secret(acme: Api) -> None:
    assert acme.patch("/orgs/acme", {"name": "Renamed"}, seen=1).status_code == 200
    record, key = AuditRecord.objects.latest("seq"), ApiKey.objects.get()
    assert (record.actor_kind, record.actor_id, record.actor_name) == ("key", str(key.pk), "test")
    assert record.organisation_id == Organisation.objects.get().pk
    assert acme.token is not None
    assert acme.token not in repr(record.__dict__)
